// What the page knows: the question that is wanted, the one that is answered on the page, and how it is looked at.

import { percent, plain } from "./dom.js";

export const state = {
  kind: "text", text: "", second: "", long: "error", image: null, imageName: "",
  model: "", method: "trans-att", target: "", versus: "",
  options: {}, level: "word", smooth: true, opacity: 75, layer: 0, hidden: [], beside: [],
};

export const found = { models: [], methods: [], answer: null, photo: null, curve: null, asked: null };

const QUESTION = ["kind", "text", "second", "long", "image", "imageName", "model", "method", "options", "target", "versus"];
const VIEW = ["level", "smooth", "opacity", "layer", "hidden", "beside"];
const picked = (keys) => Object.fromEntries(keys.map((key) => [key, state[key]]));

// The question that is wanted; found.asked is the one whose answer is shown, and all that follows is about that.
export const wanted = () => picked(QUESTION);

export const saved = () => ({ ...picked(VIEW), ...(found.asked ?? wanted()) });

// Takes over what a link says, as far as it has the right shape; the rest stays.
export function restore(given) {
  if (given === null || typeof given !== "object") throw new Error("This link is damaged.");
  for (const key of [...QUESTION, ...VIEW]) {
    const value = given[key];
    const fits = key === "image" ? value === null || (typeof value === "string" && value.startsWith("data:image/")) : sameKind(value, state[key]);
    if (fits) state[key] = value;
  }
}

const sameKind = (value, like) => typeof value === typeof like && value !== null && Array.isArray(value) === Array.isArray(like);

export const model = (name = found.asked.model) => found.models.find((one) => one.name === name);

// What the model says, for people: a share, or the number itself for a regression.
export const told = (value) => (model().problem === "regression" ? plain(value) : percent(value));

// The input and class alone, and with a method: what the server is asked.
export function input(changes = {}, of = found.asked) {
  const source = { text: { text: of.text }, pair: { pair: [of.text, of.second] }, image: { image: of.image } }[of.kind];
  const chosen = { model: of.model, target: of.target, versus: of.versus, ...changes };
  const classes = Object.fromEntries(["target", "versus"].filter((key) => chosen[key] !== "").map((key) => [key, Number(chosen[key])]));
  const long = of.kind === "image" ? {} : { long: of.long };
  return { ...source, ...long, model: chosen.model, ...classes };
}

// Options belong to the method that was chosen; others are asked with their own defaults.
export function question(changes = {}, of = found.asked) {
  const method = changes.method ?? of.method;
  return { ...input(changes, of), method, options: method === of.method ? of.options : {} };
}

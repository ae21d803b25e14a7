// What the page knows: the question as it stands, the last answer, and what is hidden.

import { percent, plain } from "./dom.js";

export const state = {
  kind: "text", text: "", second: "", long: "error", image: null, imageName: "",
  model: "", method: "trans-att", target: "", versus: "",
  options: {}, level: "word", smooth: true, opacity: 75, layer: 0, hidden: [], beside: [],
};

export const found = { models: [], methods: [], answer: null, photo: null, curve: null };

const SAVED = ["kind", "text", "second", "long", "image", "imageName", "model", "method", "options", "target", "versus", "level", "smooth", "opacity", "layer", "hidden", "beside"];

export const saved = () => Object.fromEntries(SAVED.map((key) => [key, state[key]]));

// Takes over what a link says, as far as it has the right shape; the rest stays.
export function restore(given) {
  if (given === null || typeof given !== "object") throw new Error("This link is damaged.");
  for (const key of SAVED) {
    const value = given[key];
    const fits = key === "image" ? value === null || (typeof value === "string" && value.startsWith("data:image/")) : sameKind(value, state[key]);
    if (fits) state[key] = value;
  }
}

const sameKind = (value, like) => typeof value === typeof like && value !== null && Array.isArray(value) === Array.isArray(like);

export const model = (name = state.model) => found.models.find((one) => one.name === name);

// What the model says, for people: a share, or the number itself for a regression.
export const told = (value) => (model().problem === "regression" ? plain(value) : percent(value));

// The input and class alone, and with a method: what the server is asked.
export function input(changes = {}) {
  const source = { text: { text: state.text }, pair: { pair: [state.text, state.second] }, image: { image: state.image } }[state.kind];
  const chosen = { model: state.model, target: state.target, versus: state.versus, ...changes };
  const classes = Object.fromEntries(["target", "versus"].filter((key) => chosen[key] !== "").map((key) => [key, Number(chosen[key])]));
  const long = state.kind === "image" ? {} : { long: state.long };
  return { ...source, ...long, model: chosen.model, ...classes };
}

// Options belong to the method that was chosen; others are asked with their own defaults.
export function question(changes = {}) {
  const method = changes.method ?? state.method;
  return { ...input(changes), method, options: method === state.method ? state.options : {} };
}

// What the page knows: the question that is wanted, the one that is answered on the page, and how it is looked at.

import { percent, plain } from "./dom.js";

export const unasked = { kind: "text", text: "", second: "", long: "error", image: null, imageName: "", model: "", method: "trans-att", options: {}, target: "", versus: "" };
const unseen = { level: "word", smooth: true, opacity: 75, layer: 0, hidden: [], beside: [] };
const INPUTS = { text: ["text", "long"], pair: ["text", "second", "long"], image: ["image", "imageName"] };
const keysOf = (kind) => ["kind", ...INPUTS[kind], "model", "method", "options", "target", "versus"];

export const state = { ...unasked, ...unseen };

// `asked` is the question whose answer is shown: whatever follows is about that one.
export const found = { models: [], methods: [], answer: null, photo: null, curve: null, asked: null };

const picked = (source, keys) => Object.fromEntries(keys.map((key) => [key, source[key]]));

export const wanted = () => picked(state, Object.keys(unasked));

// What is shown and how, without what belongs to other kinds of input.
export function saved() {
  return { ...picked(found.asked, keysOf(found.asked.kind)), ...picked(state, Object.keys(unseen)) };
}

// Whether two questions are about the same input of the same model, so that hidden places mean the same.
export function alike(one, two) {
  if (!one || !two || one.kind !== two.kind) return false;
  return [...INPUTS[one.kind], "model"].every((key) => one[key] === two[key]);
}

// --- links -------------------------------------------------------------------------------------------------------

const isText = (value) => typeof value === "string";
const isWhole = (value) => Number.isInteger(value) && value >= 0;
const isRecord = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isMethod = (value) => found.methods.some((one) => one.name === value);
const isClass = (value, name) => value === "" || (isText(value) && /^\d+$/.test(value) && Number(value) < (model(name)?.labels.length ?? 0));
const isBeside = (one) => isRecord(one) && isMethod(one.method) && Boolean(model(one.model)) && isClass(one.target, one.model) && isRecord(one.options ?? {});

const FITS = {
  kind: (value) => Object.keys(INPUTS).includes(value), text: isText, second: isText, long: (value) => ["error", "truncate"].includes(value),
  image: (value) => value === null || (isText(value) && value.startsWith("data:")), imageName: isText,
  model: (value, given) => Boolean(model(value)) && reads(model(value), given.kind), method: isMethod, options: isRecord,
  target: (value, given) => isClass(value, given.model), versus: (value, given) => isClass(value, given.model),
  level: (value) => ["word", "token"].includes(value), smooth: (value) => typeof value === "boolean",
  opacity: (value) => isWhole(value) && value <= 100, layer: isWhole,
  hidden: (value) => Array.isArray(value) && value.every(isWhole), beside: (value) => Array.isArray(value) && value.every(isBeside),
};

// A question and a view as a link gives them; a link that does not fit is refused whole, for half of one is another question.
export function understood(given) {
  if (!isRecord(given)) throw new Error("This link is damaged.");
  for (const [key, fits] of Object.entries(FITS)) {
    if (key in given && !fits(given[key], given)) throw new Error(`This link does not fit this page: its ${key} is ${String(JSON.stringify(given[key])).slice(0, 80)}.`);
  }
  const full = { ...unasked, ...unseen, ...given };
  return { question: picked(full, keysOf(full.kind)), view: picked(full, Object.keys(unseen)) };
}

// --- questions to the server -------------------------------------------------------------------------------------

export const model = (name) => found.models.find((one) => one.name === name);
export const reads = (one, kind) => (one.kind === "image") === (kind === "image");
export const answering = () => model(found.asked.model);

// What the model says, for people: a share, or the number itself for a regression.
export const told = (value) => (answering().problem === "regression" ? plain(value) : percent(value));

// The input and class alone, and with a method: what the server is asked.
export function input(changes = {}, of = found.asked) {
  const source = { text: { text: of.text }, pair: { pair: [of.text, of.second] }, image: { image: of.image } }[of.kind];
  const chosen = { ...picked(of, ["model", "target", "versus"]), ...changes };
  const classes = Object.fromEntries(["target", "versus"].filter((key) => chosen[key] !== "").map((key) => [key, Number(chosen[key])]));
  const long = of.kind === "image" ? {} : { long: of.long };
  return { ...source, ...long, model: chosen.model, ...classes };
}

// Options belong to the method that was chosen; others are asked with their own defaults.
export function question(changes = {}, of = found.asked) {
  const method = changes.method ?? of.method;
  return { ...input(changes, of), method, options: changes.options ?? (method === of.method ? of.options : {}) };
}

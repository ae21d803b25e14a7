// The question and its view in the address, behind the #, which browsers do not send to servers.

import {
  acceptsKind, DEFAULT_QUESTION, DEFAULT_VIEW, findMethod, findModel, INPUT_KEYS, isCompared as isComparedKind, listTexts, pick, questionKeys, takeSnapshot,
} from "./state.js";

const MAX_IMAGE_CHARACTERS = 400_000;
const MAX_SHOWN_CHARACTERS = 80;
const MAX_COMPARED = 12; // each is computed when the link is opened
const FORMER_KEYS = { long: "overflow", beside: "compared" }; // of links that were made before the keys were renamed

export const updateAddress = () => history.replaceState(null, "", encodeLink(dropLargeImage(takeSnapshot())));

export const fitsInLink = (snapshot) => (snapshot.image?.length ?? 0) < MAX_IMAGE_CHARACTERS;

const dropLargeImage = (snapshot) => (fitsInLink(snapshot) ? snapshot : { ...snapshot, image: null, imageName: "" });

// JSON in URL-safe base64. btoa takes one byte per character, so UTF-8 is encoded first.
function encodeLink(snapshot) {
  const bytes = new TextEncoder().encode(JSON.stringify(snapshot));
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return `#${btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
}

// What is behind the #, or null if there is nothing.
export function decodeLink(hash) {
  if (hash.length < 2) return null;
  try {
    const binary = atob(hash.slice(1).replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(binary, (character) => character.charCodeAt(0));
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    throw new Error("This link is damaged.");
  }
}

// Splits a snapshot into question and view. An invalid value rejects the whole link: without it, the rest would be
// another question than the one that was shared.
export function parseSnapshot(data) {
  if (!isRecord(data)) throw new Error("This link is damaged.");
  const snapshot = renameFormerKeys(data);
  for (const [key, isValid] of Object.entries(VALIDATORS)) {
    if (key in snapshot && !isValid(snapshot[key], snapshot)) throw new Error(describeInvalid(key, snapshot[key]));
  }
  const complete = { ...DEFAULT_QUESTION, ...DEFAULT_VIEW, ...snapshot };
  return { question: pick(complete, questionKeys(complete.kind)), view: pick(complete, Object.keys(DEFAULT_VIEW)) };
}

function renameFormerKeys(data) {
  const renamed = { ...data };
  for (const [former, key] of Object.entries(FORMER_KEYS)) {
    if (former in data && !(key in data)) renamed[key] = data[former];
  }
  return renamed;
}

function describeInvalid(key, value) {
  const shown = String(JSON.stringify(value)).slice(0, MAX_SHOWN_CHARACTERS);
  return `Invalid ${key} in this link: ${shown}. This server has no such choice, or the link is damaged.`;
}

const isText = (value) => typeof value === "string";
const isIndex = (value) => Number.isInteger(value) && value >= 0;
const isRecord = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isMethod = (value) => Boolean(findMethod(value));
const isImage = (value) => value === null || (isText(value) && value.startsWith("data:"));

function isClass(value, modelName) {
  if (value === "") return true;
  return isText(value) && /^\d+$/.test(value) && Number(value) < (findModel(modelName)?.labels.length ?? 0);
}

// The classes of a two-tower model are the texts.
function isTarget(value, { kind, model, texts = "" }) {
  if (!isComparedKind(kind)) return isClass(value, model);
  return value === "" || (/^\d+$/.test(value) && Number(value) < listTexts(String(texts)).length);
}

function isCompared(entry) {
  if (!isRecord(entry) || !isMethod(entry.method) || !findModel(entry.model)) return false;
  return isClass(entry.target, entry.model) && isRecord(entry.options ?? {});
}

const VALIDATORS = {
  kind: (value) => Object.keys(INPUT_KEYS).includes(value),
  text: isText,
  second: isText,
  focus: isText,
  texts: isText,
  overflow: (value) => ["error", "truncate"].includes(value),
  image: isImage,
  imageName: isText,
  model: (value, snapshot) => Boolean(findModel(value)) && acceptsKind(findModel(value), snapshot.kind),
  format: (value) => ["plain", "chat"].includes(value),
  prompt: isText,
  system: isText,
  answer: isText,
  foil: isText,
  length: isIndex,
  word: (value) => value === null || (Array.isArray(value) && value.length === 2 && value.every(isIndex)),
  method: isMethod,
  options: isRecord,
  target: isTarget,
  versus: isTarget,
  level: (value) => ["word", "token"].includes(value),
  smooth: (value) => typeof value === "boolean",
  opacity: (value) => isIndex(value) && value <= 100,
  layer: isIndex,
  check: (value) => typeof value === "boolean",
  hidden: (value) => Array.isArray(value) && value.every(isIndex),
  compared: (value) => Array.isArray(value) && value.length <= MAX_COMPARED && value.every(isCompared),
};

// Input fields for the options of a method. Their types follow from the defaults; the server checks the values.

import { createElement, fillSelect, find } from "./dom.js";
import { guard } from "./errors.js";
import { findMethod, session, state } from "./state.js";

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const BOOLEANS = { true: true, false: false };
const MAX_CHARACTERS = 200;

let shownMethod = null;

const defaultOptions = () => Object.entries(findMethod(state.method)?.options ?? {});

export function fillOptions(onChange) {
  const defaults = defaultOptions();
  const kind = ["pair", "similarity"].includes(state.kind) ? "text" : state.kind;
  const isSameMethod = shownMethod === `${kind} ${state.method}`;
  const hasChosen = Object.keys(state.options).length > 0;
  find("options").open = hasChosen || (isSameMethod && find("options").open);
  if (isSameMethod) updateFields(defaults);
  else createFields(defaults, onChange);
  shownMethod = `${kind} ${state.method}`;
}

// Existing fields are updated in place, so that the one being edited keeps the focus.
function updateFields(defaults) {
  for (const [name, value] of defaults) fillField(find(`option-${name}`), name, value);
}

function createFields(defaults, onChange) {
  find("options").hidden = !defaults.length;
  find("option-fields").replaceChildren(...defaults.map(([name, value]) => createField(name, value, onChange)));
}

function createField(name, defaultValue, onChange) {
  const choices = listChoices(name);
  const input = choices ? createSelect(name, defaultValue, choices) : createInput(name, defaultValue);
  input.onchange = guard(() => onChange(readOptions()));
  fillField(input, name, defaultValue);
  const label = createElement("label", { className: "stacked", htmlFor: input.id, textContent: name.replaceAll("_", " ") });
  return createElement("div", {}, label, input);
}

function createInput(name, defaultValue) {
  return createElement("input", {
    id: `option-${name}`,
    type: inputType(defaultValue),
    step: "any",
    placeholder: defaultValue === null ? "automatic" : String(defaultValue),
    maxLength: MAX_CHARACTERS,
  });
}

// Options with a few possible values, which differ between texts and photos; prompts have values of their own.
function listChoices(name) {
  // What fits a photo does not fit its texts.
  if (["prompt", "caption"].includes(state.kind)) return null;
  return session.choices[state.kind === "image" ? "image" : "text"][name] ?? null;
}

function createSelect(name, defaultValue, choices) {
  const select = createElement("select", { id: `option-${name}` });
  const first = defaultValue === null ? [["", "automatic"]] : [];
  fillSelect(select, [...first, ...choices.map((choice) => [choice, choice])]);
  return select;
}

function inputType(defaultValue) {
  if (typeof defaultValue === "boolean") return "checkbox";
  return typeof defaultValue === "number" ? "number" : "text";
}

function fillField(input, name, defaultValue) {
  const value = name in state.options ? state.options[name] : defaultValue;
  if (typeof defaultValue === "boolean") input.checked = Boolean(value);
  else input.value = value === null ? "" : String(value);
}

// Only values that differ from the defaults; an empty field means the default.
function readOptions() {
  const options = {};
  for (const [name, defaultValue] of defaultOptions()) {
    const value = readField(find(`option-${name}`), defaultValue);
    if (value !== defaultValue) options[name] = value;
  }
  return options;
}

function readField(input, defaultValue) {
  if (typeof defaultValue === "boolean") return input.checked;
  const text = input.value.trim();
  return text === "" ? defaultValue : parseValue(text);
}

function parseValue(text) {
  if (NUMBER.test(text)) return Number(text);
  return BOOLEANS[text.toLowerCase()] ?? text;
}

// Parses "name:key=value,key=value", as runs write a method with options.
export function parseMethod(spec) {
  const [name, , tail] = spec.split(/(:)(.*)/s);
  const options = {};
  for (const assignment of (tail ?? "").split(",").filter((text) => text.includes("="))) {
    const [key, value] = assignment.split(/=(.*)/s);
    options[key.trim()] = parseValue(value.trim());
  }
  return [name, options];
}

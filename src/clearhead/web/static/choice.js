// The options of a method, as its defaults tell what they are; the server says what it does not take.

import { find, make } from "./dom.js";
import { found, state } from "./state.js";

let report = (error) => { throw error; };
export const onOptions = (handler) => (report = handler);

const method = () => found.methods.find((one) => one.name === state.method);

let filled = null; // the method whose fields stand there; they keep the focus when only their values change

export function fillOptions(choose) {
  const defaults = Object.entries(method()?.options ?? {});
  const given = Object.keys(state.options).length > 0;
  find("options").open = given || (filled === state.method && find("options").open);
  if (filled === state.method) return defaults.forEach(([name, usual]) => fill(find(`option-${name}`), name, usual));
  filled = state.method;
  find("options").hidden = !defaults.length;
  find("option-fields").replaceChildren(...defaults.map(([name, usual]) => field(name, usual, choose)));
}

function field(name, usual, choose) {
  const input = control(name, usual);
  input.id = `option-${name}`;
  input.onchange = () => Promise.resolve(choose(given())).catch(report);
  return make("div", {}, make("label", { className: "stacked", htmlFor: input.id, textContent: name.replaceAll("_", " ") }), input);
}

function control(name, usual) {
  const type = { boolean: "checkbox", number: "number" }[typeof usual] ?? "text";
  const input = make("input", { type, step: "any", placeholder: usual === null ? "automatic" : String(usual), maxLength: 200 });
  fill(input, name, usual);
  return input;
}

function fill(input, name, usual) {
  const value = name in state.options ? state.options[name] : usual;
  if (typeof usual === "boolean") input.checked = Boolean(value);
  else input.value = value === null ? "" : String(value);
}

// What differs from the defaults; an empty field is the default.
function given() {
  const chosen = {};
  for (const [name, usual] of Object.entries(method().options)) {
    const input = find(`option-${name}`);
    const value = typeof usual === "boolean" ? input.checked : input.value.trim() === "" ? usual : read(input.value.trim());
    if (value !== usual) chosen[name] = value;
  }
  return chosen;
}

const read = (text) => (/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : { true: true, false: false }[text.toLowerCase()] ?? text);

// "name:key=value,key=value" as a run spells a method.
export function spelled(text) {
  const [name, , tail] = text.split(/(:)(.*)/s);
  const pairs = (tail ?? "").split(",").filter((one) => one.includes("=")).map((one) => one.split(/=(.*)/s));
  return [name, Object.fromEntries(pairs.map(([key, value]) => [key.trim(), read(value.trim())]))];
}

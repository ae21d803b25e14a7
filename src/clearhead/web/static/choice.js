// The options of a method, as its defaults tell what they are; the server says what it does not take.

import { find, make } from "./dom.js";
import { found, state } from "./state.js";

let report = (error) => { throw error; };
export const onOptions = (handler) => (report = handler);

const method = () => found.methods.find((one) => one.name === state.method);

export function fillOptions(choose) {
  const defaults = Object.entries(method()?.options ?? {});
  find("options").hidden = !defaults.length;
  find("options").open = Object.keys(state.options).length > 0;
  find("option-fields").replaceChildren(...defaults.map(([name, usual]) => field(name, usual, choose)));
}

function field(name, usual, choose) {
  const input = control(name, usual);
  input.id = `option-${name}`;
  input.onchange = () => Promise.resolve(choose(given())).catch(report);
  return make("div", {}, make("label", { className: "stacked", htmlFor: input.id, textContent: name.replaceAll("_", " ") }), input);
}

function control(name, usual) {
  const value = name in state.options ? state.options[name] : usual;
  if (typeof usual === "boolean") return make("input", { type: "checkbox", checked: Boolean(value) });
  const type = typeof usual === "number" ? "number" : "text";
  return make("input", { type, step: "any", value: value === null ? "" : String(value), placeholder: usual === null ? "automatic" : String(usual), maxLength: 200 });
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

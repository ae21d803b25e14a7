// The menus of methods: grouped, with plain names, and only those that take the kind of input.

import { fillGroupedSelect } from "./dom.js";
import { parseMethod } from "./method_options.js";
import { session } from "./state.js";

// `model` is the one whose default is named.
export function fillMethodMenu(select, kind, model, selected) {
  const input = { image: "image", caption: "image", prompt: "prompt" }[kind] ?? "text";
  const groups = new Map();
  for (const method of session.methods) {
    if (!method.inputs.includes(input) && method.name !== selected) continue;
    if (!groups.has(method.group)) groups.set(method.group, []);
    groups.get(method.group).push([method.name, nameMethod(method, model)]);
  }
  fillGroupedSelect(select, [...groups], selected);
}

function nameMethod({ name, title }, model) {
  const plain = title ? `${name} – ${title}` : name;
  if (name !== parseMethod(model.method)[0]) return plain;
  return `${plain} (${model.chosen ? "chosen for this model" : "the default"})`;
}

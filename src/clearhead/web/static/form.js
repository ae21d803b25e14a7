// The form: what is chosen and typed, until it is asked.

import { find, make, options } from "./dom.js";
import { found, model, reads } from "./state.js";

const KINDS = { text: "Text", pair: "Pair", image: "Photo" };
const EXAMPLES = {
  "clearhead/sst2-minilm": ["a joyless , tedious film that never finds its heart", "slow at first , but never dull , and very funny in the end"],
  "clearhead/agnews-minilm": ["Oil prices climb as storms shut refineries along the coast", "The striker scored twice in the last ten minutes of the final"],
};
const HINT = find("picture-name").textContent;
const kept = {}; // the model and class last chosen for photos, and for texts
const form = { kind: "text", image: null, imageName: "", model: "", target: "", versus: "" };

export const fitting = (kind) => found.models.filter((one) => reads(one, kind)).map((one) => one.name);

export function classesOf(name) {
  const { problem, labels } = model(name);
  return ["span", "regression"].includes(problem) ? [] : labels.map((label, place) => [String(place), label]);
}

// Takes over what a question says; what it leaves open stays as it was typed.
export function fillForm(given = {}) {
  for (const key in form) if (key in given) form[key] = given[key];
  for (const key of ["text", "second", "long"]) if (key in given) find(key).value = given[key];
  const kinds = Object.keys(KINDS).filter((kind) => fitting(kind).length);
  if (!kinds.includes(form.kind)) form.kind = kinds[0];
  find("kinds").replaceChildren(find("kinds").firstElementChild, ...kinds.map(radio));
  find("picture-name").textContent = form.imageName || HINT;
  fillModels();
}

function radio(kind) {
  const input = make("input", { type: "radio", name: "kind", value: kind, checked: kind === form.kind, onchange: () => chooseKind(kind) });
  return make("label", {}, input, make("span", { textContent: KINDS[kind] }));
}

function chooseKind(kind) {
  const { model, target, versus } = form;
  kept[form.kind === "image"] = { model, target, versus };
  Object.assign(form, { kind }, kept[kind === "image"]);
  fillModels();
}

function fillModels() {
  const names = fitting(form.kind);
  if (!names.includes(form.model)) chooseModel(names[0]);
  for (const part of document.querySelectorAll("[data-kind]")) part.hidden = !part.dataset.kind.split(" ").includes(form.kind);
  find("text-name").textContent = form.kind === "pair" ? "First text" : "Text";
  options(find("model"), names.map((name) => [name, name]), form.model);
  fillClasses();
}

const chooseModel = (name) => Object.assign(form, { model: name, target: "", versus: "" });

function fillClasses() {
  find("model-summary").textContent = model(form.model).summary;
  const classes = classesOf(form.model);
  find("classed").hidden = !classes.length;
  options(find("target"), [["", "Predicted"], ...classes], form.target);
  options(find("versus"), [["", "No other"], ...classes], form.versus);
  const examples = form.kind === "text" ? (EXAMPLES[form.model] ?? []) : [];
  find("examples").replaceChildren(...examples.map((text) => make("button", { type: "button", textContent: text, title: text, onclick: () => useExample(text) })));
}

function useExample(text) {
  find("text").value = text;
  find("ask").requestSubmit();
}

// What keeps the form from being asked, if anything does.
function missing() {
  if (form.kind === "image") return form.image ? "" : "Choose a photo first, or drop one on the page.";
  if (!find("text").value.trim()) return "Type a text first: there is nothing to explain.";
  return form.kind === "pair" && !find("second").value.trim() ? "Type the second text too: a pair has two." : "";
}

// The question as the form has it.
export function readForm() {
  if (missing()) throw new Error(missing());
  return { ...form, ...Object.fromEntries(["text", "second", "long"].map((key) => [key, find(key).value])) };
}

export function wireForm(ask) {
  find("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  find("ask").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("ask").requestSubmit();
  });
  find("model").onchange = () => {
    chooseModel(find("model").value);
    fillModels();
  };
  for (const id of ["target", "versus"]) find(id).onchange = () => {
    form[id] = find(id).value;
    const waiting = document.body.classList.contains("busy");
    if ((found.answer || waiting) && !missing()) ask();
  };
}

export function wirePicture(use) {
  find("picture").onchange = () => {
    use(find("picture").files[0]);
    find("picture").value = ""; // so that the same file can be chosen again
  };
  const over = (on) => (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    find("drop").classList.toggle("over", on);
  };
  addEventListener("dragover", over(true));
  addEventListener("dragleave", over(false));
  addEventListener("drop", (event) => {
    over(false)(event);
    use(event.dataTransfer?.files[0]);
  });
}

// The form: what is typed and chosen, until it is asked.

import { createElement, fillSelect, fillSelectWithNames, find } from "./dom.js";
import { acceptsKind, DEFAULT_QUESTION, findModel, hasPhoto, INPUT_KEYS, isCompared, listTexts, pick, session } from "./state.js";

const KINDS = { text: "Text", pair: "Pair", image: "Photo", caption: "Photo and texts", similarity: "Similarity", prompt: "Prompt" };
const TEXT_FIELDS = ["text", "second", "texts", "overflow", "prompt", "system", "answer", "foil", "length", "focus"];
const EDITED = ["text", "second", "texts", "focus"];
const FIELD_IDS = { answer: "answer-text" }; // where the id is not the name of the field
const EXAMPLES = {
  "clearhead/sst2-minilm": ["a joyless , tedious film that never finds its heart", "slow at first , but never dull , and very funny in the end"],
  "clearhead/agnews-minilm": ["Oil prices climb as storms shut refineries along the coast", "The striker scored twice in the last ten minutes of the final"],
};
const PROMPTS = [
  { format: "plain", prompt: "The capital of France is", answer: "", foil: "" },
  { format: "plain", prompt: "Anna lives in Oslo. Ben lives in Rome. The city where Ben lives is called", answer: "", foil: "" },
  { format: "chat", prompt: "Which river flows through Paris?", answer: "", foil: "" },
];
const MAX_LENGTH = 256;
const MAX_TEXTS = 16;
const FILE_HINT = find("picture-name").textContent;

const form = { kind: "text", image: null, imageName: "", format: "plain", model: "", target: "", versus: "" };
let useSample = () => {};
const lastChoices = {}; // model and classes, by the models that the input needs

const fieldOf = (key) => find(FIELD_IDS[key] ?? key);

export const modelsForKind = (kind) => session.models.filter((model) => acceptsKind(model, kind)).map((model) => model.name);

// Pairs of number and label; models that answer a number or a span have no classes.
export function classesOf(modelName) {
  const { problem, labels } = findModel(modelName);
  if (["span", "regression", "answer"].includes(problem)) return [];
  return labels.map((label, index) => [String(index), label]);
}

// Fills in the values of a question; what it does not mention stays as it was typed.
export function fillForm(values = {}) {
  for (const key in form) if (key in values) form[key] = values[key];
  for (const key of TEXT_FIELDS) if (key in values) fieldOf(key).value = values[key];
  const kinds = Object.keys(KINDS).filter((kind) => modelsForKind(kind).length);
  if (!kinds.includes(form.kind)) form.kind = kinds[0];
  const legend = find("kinds").firstElementChild;
  find("kinds").replaceChildren(legend, ...kinds.map(createKindRadio));
  find("kinds").classList.toggle("many", kinds.some(isCompared));
  find("picture-name").textContent = form.imageName || FILE_HINT;
  fillModels();
}

function createKindRadio(kind) {
  const input = createElement("input", { type: "radio", name: "kind", value: kind, checked: kind === form.kind });
  input.onchange = () => chooseKind(kind);
  return createElement("label", {}, input, createElement("span", { textContent: KINDS[kind] }));
}

// Texts, photos and prompts need different models, so each remembers its own choice.
function chooseKind(kind) {
  lastChoices[modelsForKind(form.kind)] = pick(form, ["model", "target", "versus"]);
  Object.assign(form, { kind }, lastChoices[modelsForKind(kind)]);
  fillModels();
}

function fillModels() {
  const names = modelsForKind(form.kind);
  if (!names.includes(form.model)) chooseModel(names[0]);
  showFieldsOfKind();
  fillSelectWithNames(find("model"), names, form.model);
  fillClasses();
}

function showFieldsOfKind() {
  for (const block of document.querySelectorAll("[data-kind]")) {
    block.hidden = !block.dataset.kind.split(" ").includes(form.kind);
  }
  find("text-name").textContent = form.kind === "text" ? "Text" : "First text";
  find("texts-name").textContent = form.kind === "caption" ? "Texts, one per line" : "Compared with, one text per line";
  find("explain").textContent = form.kind === "prompt" ? "Ask" : "Explain";
  if (form.kind === "prompt") showFormat();
}

// Only models with a chat template take a chat.
function showFormat() {
  const hasChat = findModel(form.model).chat;
  if (!hasChat) form.format = "plain";
  for (const radio of document.querySelectorAll("[name=format]")) {
    radio.checked = radio.value === form.format;
    radio.disabled = radio.value === "chat" && !hasChat;
  }
  find("system-field").hidden = form.format !== "chat";
  find("prompt-name").textContent = form.format === "chat" ? "User message" : "Prompt";
}

const chooseModel = (name) => Object.assign(form, { model: name, target: "", versus: "" });

function fillClasses() {
  const { summary, focus } = findModel(form.model);
  find("model-summary").textContent = summary;
  find("focus-choice").hidden = !focus || !INPUT_KEYS[form.kind].includes("focus");
  find("focus-hint").textContent = focus;
  const classes = classesOf(form.model);
  find("class-choice").hidden = !classes.length;
  fillSelect(find("target"), [["", "Predicted"], ...classes], form.target);
  fillSelect(find("versus"), [["", "No contrast"], ...classes], form.versus);
  find("examples").replaceChildren(...listExamples().map(createExampleButton));
}

// What an example fills in; its first text is its name.
function listExamples() {
  if (form.kind === "prompt") return PROMPTS.filter(({ format }) => format === "plain" || findModel(form.model).chat);
  if (hasPhoto(form.kind)) return [{ sample: "A cat (photo)" }];
  return form.kind === "text" ? (EXAMPLES[form.model] ?? []).map((text) => ({ text })) : [];
}

function createExampleButton(values) {
  const name = values.text ?? values.prompt ?? values.sample;
  const onclick = () => {
    if (values.sample) {
      useSample();
      return;
    }
    fillForm(values);
    find("input-form").requestSubmit();
  };
  return createElement("button", { type: "button", textContent: name, title: name, onclick });
}

// Says what is missing before the form can be submitted; empty if nothing is.
function describeMissing() {
  if (form.kind === "prompt") return describeMissingPrompt();
  if (hasPhoto(form.kind) && !form.image) return "Choose a photo first, or drop one on the page.";
  if (!hasPhoto(form.kind) && !find("text").value.trim()) return "Enter a text first: there is nothing to explain.";
  if (form.kind === "pair" && !find("second").value.trim()) return "Enter the second text too: a pair needs both.";
  return isCompared(form.kind) ? describeMissingTexts() : "";
}

function describeMissingTexts() {
  const { length } = listTexts(find("texts").value);
  if (!length) return "Enter at least one text to compare with.";
  return length > MAX_TEXTS ? `Enter at most ${MAX_TEXTS} texts, one per line: there are ${length}.` : "";
}

export const isComplete = () => !describeMissing();

// What a new photo is for: photos without texts, unless the form or the server has only those with texts.
export const kindOfPhoto = () => (form.kind === "caption" || !modelsForKind("image").length ? "caption" : "image");

function describeMissingPrompt() {
  if (!find("prompt").value.trim()) return "Enter a prompt first: there is nothing to continue.";
  const length = Number(find("length").value);
  const isValid = Number.isInteger(length) && length >= 1 && length <= MAX_LENGTH;
  return isValid ? "" : `Invalid length of the answer: give a number of tokens from 1 to ${MAX_LENGTH}.`;
}

// The question as it is filled in; throws if something is missing.
export function readForm() {
  const missing = describeMissing();
  if (missing) throw new Error(missing);
  const texts = Object.fromEntries(TEXT_FIELDS.map((key) => [key, fieldOf(key).value]));
  return { ...form, ...texts, length: Number(texts.length) || DEFAULT_QUESTION.length };
}

// Says beside the explanation that the text was edited since.
export function markStale() {
  const { question } = session;
  const keys = question && question.kind === form.kind ? INPUT_KEYS[form.kind].filter((key) => EDITED.includes(key)) : [];
  find("stale").hidden = keys.every((key) => find(key).value === question[key]);
}

export function wireForm(submit, onSample) {
  useSample = onSample;
  for (const id of EDITED) find(id).addEventListener("input", markStale);
  find("input-form").addEventListener("submit", (event) => {
    event.preventDefault(); // the browser would load the page again
    submit();
  });
  find("input-form").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("input-form").requestSubmit();
  });
  find("model").onchange = () => {
    chooseModel(find("model").value);
    fillModels();
    explainAgain(submit);
  };
  for (const radio of document.querySelectorAll("[name=format]")) {
    radio.onchange = () => {
      form.format = radio.value;
      showFormat();
    };
  }
  for (const id of ["target", "versus"]) find(id).onchange = () => chooseClass(id, submit);
}

function chooseClass(id, submit) {
  form[id] = find(id).value;
  explainAgain(submit);
}

// Another model or class is explained at once, if there is an explanation or one is being computed.
function explainAgain(submit) {
  const isBusy = document.body.classList.contains("busy");
  if ((session.explanation || isBusy) && !describeMissing()) submit();
}

export function wirePhotoInput(onFile) {
  find("picture").onchange = () => {
    onFile(find("picture").files[0]);
    find("picture").value = ""; // or choosing the same file again would not fire an event
  };
  addEventListener("dragover", (event) => markDropZone(event, true));
  addEventListener("dragleave", (event) => markDropZone(event, false));
  addEventListener("drop", (event) => {
    markDropZone(event, false);
    onFile(event.dataTransfer?.files[0]);
  });
}

function markDropZone(event, isOver) {
  if (!event.dataTransfer?.types.includes("Files")) return;
  event.preventDefault(); // the browser would open the file instead of the page
  find("drop").classList.toggle("over", isOver);
}

// Ask, see, test, keep: the page's wiring.

import * as api from "./api.js";
import { showBeside } from "./beside.js";
import { startBrowsing } from "./browse.js";
import { complain, find, make, options, percent } from "./dom.js";
import * as link from "./link.js";
import { loaded } from "./photo.js";
import { fillOptions, onOptions, spelled } from "./choice.js";
import { showAnswer, showHidden, showRelevance } from "./see.js";
import { found, model, question, restore, saved, state, wanted } from "./state.js";
import { showCharacters } from "./text.js";
import { hideTop, measure, onProblem, startTrial, toggle } from "./trial.js";

const LARGEST = 8_000_000;
const KINDS = { text: "Text", pair: "Pair", image: "Photo" };
const QUICK = ["trans-att", "att-cat", "rollout", "raw-attention", "attention-gradcam", "gradient-x-input", "lrp", "cat", "att-grads"];
const EXAMPLES = {
  "clearhead/sst2-minilm": ["a joyless , tedious film that never finds its heart", "slow at first , but never dull , and very funny in the end"],
  "clearhead/agnews-minilm": ["Oil prices climb as storms shut refineries along the coast", "The striker scored twice in the last ten minutes of the final"],
};
const visit = [];
const form = { kind: "", image: null, imageName: "", model: "", target: "", versus: "" }; // what is chosen, until it is asked
let asking = new AbortController();

function problem(error) {
  if (error?.name === "AbortError") return;
  complain(error?.message ?? String(error));
}

addEventListener("error", (event) => problem(event.error ?? event.message));
addEventListener("unhandledrejection", (event) => problem(event.reason));
onProblem(problem);
onOptions(problem);

const guarded = (work) => async (...given) => {
  try {
    await work(...given);
  } catch (error) {
    problem(error);
  }
};

// --- ask ---------------------------------------------------------------------------------------------------------

const named = (kind) => fitting(kind).map((one) => one.name);
const fitting = (kind) => found.models.filter((one) => (one.kind === "image") === (kind === "image"));

function fillForm() {
  for (const key in form) form[key] = state[key];
  find("text").value = state.text;
  find("second").value = state.second;
  find("long").value = state.long;
  if (find("long").selectedIndex < 0) find("long").selectedIndex = 0;
  fillKinds();
}

function fillKinds() {
  const kinds = Object.keys(KINDS).filter((kind) => fitting(kind).length);
  if (!kinds.includes(form.kind)) form.kind = kinds[0];
  const radios = kinds.map((kind) => {
    const radio = make("input", { type: "radio", name: "kind", value: kind, checked: kind === form.kind, onchange: () => chooseKind(kind) });
    return make("label", {}, radio, make("span", { textContent: KINDS[kind] }));
  });
  find("kinds").replaceChildren(find("kinds").firstElementChild, ...radios);
  if (form.imageName) find("picture-name").textContent = form.imageName;
  fillModels();
}

function chooseKind(kind) {
  form.kind = kind;
  fillModels();
}

function fillModels() {
  const names = named(form.kind);
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

function classesOf(name) {
  const { problem, labels } = model(name);
  return ["span", "regression"].includes(problem) ? [] : labels.map((label, place) => [String(place), label]);
}

function useExample(text) {
  find("text").value = text;
  find("ask").requestSubmit();
}

// From here on the form's choices are the question.
function readForm() {
  const [text, second, long] = ["text", "second", "long"].map((id) => find(id).value);
  if (form.kind === "image" && !form.image) throw new Error("Choose a photo first, or drop one on the page.");
  if (form.kind !== "image" && !text.trim()) throw new Error("Type a text first: there is nothing to explain.");
  Object.assign(state, form, { text, second, long });
}

// What can stand beside the answer: models of the same kind and their classes.
function fillBeside() {
  const names = named(state.kind), classes = classesOf(state.model);
  state.beside = state.beside.filter((one) => names.includes(one.model));
  find("other-classed").hidden = !classes.length;
  options(find("other-model"), names.map((name) => [name, name]), state.model);
  options(find("other-target"), [["", "Predicted"], ...classes], state.target);
}

const usePicture = guarded(async (file) => {
  if (!file) return;
  if (file.size > LARGEST) throw new Error(`The photo has ${(file.size / 1e6).toFixed(1)} MB; up to 8 MB are taken.`);
  if (!fitting("image").length) throw new Error("No model of this server reads photos.");
  Object.assign(form, { kind: "image", image: await api.address(file), imageName: file.name });
  fillKinds();
  await ask();
});

// --- see, test ---------------------------------------------------------------------------------------------------

async function ask({ fresh = true } = {}) {
  readForm();
  await answer(() => {
    if (fresh) [state.hidden, state.layer] = [[], 0];
    arrive();
  });
}

function arrive() {
  fillBeside();
  remember();
}

// Asks the question that is wanted and, once it is answered, shows everything that follows from it.
async function answer(then = () => {}) {
  asking.abort();
  asking = new AbortController();
  const signal = asking.signal, asked = wanted();
  document.body.classList.add("busy");
  try {
    const photo = asked.kind === "image" ? await loaded(asked.image) : null;
    const answer = await api.explain(question({}, asked), signal);
    if (signal.aborted) return;
    Object.assign(found, { photo, answer, asked });
  } catch (error) {
    if (!signal.aborted) goBack();
    throw error;
  } finally {
    if (asking.signal === signal) document.body.classList.remove("busy");
  }
  find("problems").replaceChildren();
  then();
  showAnswer(toggleAndSave);
  save();
  for (const step of [startTrial, showBeside, prefetch]) {
    if (signal.aborted) return;
    await step(signal);
  }
}

// What could not be answered is wanted no more: the page stays with what it shows.
function goBack() {
  if (!found.asked) return;
  const other = state.method !== found.asked.method; // options stay as they were typed, to be mended
  Object.assign(state, found.asked);
  if (other) fillView();
}

// One trace serves all methods, so the quick ones are fetched before they are asked for.
async function prefetch(signal) {
  for (const method of QUICK) {
    if (signal.aborted) return;
    await api.explain(question({ method }), signal).catch(() => null);
  }
}

function toggleAndSave(places) {
  toggle(places);
  save();
}

function chooseMethod() {
  [state.method, state.options] = [find("method").value, {}];
  fillOptions(chooseOptions);
  return answer();
}

function chooseOptions(options) {
  state.options = options;
  return answer();
}

function chooseLevel(level) {
  state.level = level;
  state.hidden = [];
  showRelevance(toggleAndSave);
  save();
  return startTrial().then(showBeside);
}

// --- keep --------------------------------------------------------------------------------------------------------

const save = () => history.replaceState(null, "", link.written(link.portable(saved())));

const download = guarded(async (kind) => {
  const url = URL.createObjectURL(await api.file(kind, question()));
  make("a", { href: url, download: `clearhead.${kind}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  find("kept").textContent = `Saved clearhead.${kind}`;
});

const copyLink = guarded(async () => {
  save();
  if (found.asked.kind === "image" && !link.portable(found.asked).image) throw new Error("This photo is too large to travel in a link: keep it as a page instead.");
  await navigator.clipboard.writeText(location.href);
  find("kept").textContent = "Link copied";
});

function remember() {
  const title = state.kind === "image" ? state.imageName || "a photo" : [state.text, state.kind === "pair" && state.second].filter(Boolean).join(" · ");
  const share = found.answer.probability === null ? "" : ` ${percent(found.answer.probability)}`;
  visit.unshift({ title, said: `${found.answer.label}${share} · ${state.method}`, state: structuredClone(saved()) });
  find("visit").replaceChildren(...visit.slice(0, 30).map((one) => {
    const button = make("button", { type: "button", onclick: guarded(() => recall(one.state)) }, make("span", { textContent: one.title }), make("span", { textContent: one.said }));
    return make("li", {}, button);
  }));
}

async function recall(given) {
  restore(structuredClone(given));
  fillForm();
  fillView();
  readForm();
  await answer(fillBeside);
}

// An example of a run becomes the question, on the run's model where this server has it.
async function openExample(example, method, run) {
  const known = found.models.some((one) => one.name === example.model);
  if (example.picture) {
    const image = await api.picture(run, example.example);
    Object.assign(state, { kind: "image", image, imageName: example.example });
  } else {
    const [text, second = ""] = example.text;
    Object.assign(state, { kind: second ? "pair" : "text", text, second });
  }
  [state.target, state.versus] = ["", ""];
  if (known) state.model = example.model;
  const [name, options] = spelled(method);
  if (found.methods.some((one) => one.name === name)) [state.method, state.options] = [name, options];
  fillForm();
  fillView();
  find("see").focus();
  await ask();
}

// --- start -------------------------------------------------------------------------------------------------------

function fillView() {
  for (const id of ["method", "other-method"]) options(find(id), found.methods.map((one) => [one.name, one.name]), state.method);
  fillOptions(chooseOptions);
  find("opacity").value = state.opacity;
  for (const radio of document.querySelectorAll("[name=level]")) radio.checked = radio.value === state.level;
  for (const radio of document.querySelectorAll("[name=smooth]")) radio.checked = (radio.value === "smooth") === state.smooth;
}

function wireAsk() {
  find("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    guarded(ask)();
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
    if (found.answer) guarded(() => ask({ fresh: false }))();
  };
  find("picture").onchange = () => usePicture(find("picture").files[0]);
  const over = (on) => (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    find("drop").classList.toggle("over", on);
  };
  addEventListener("dragover", over(true));
  addEventListener("dragleave", over(false));
  addEventListener("drop", (event) => {
    over(false)(event);
    usePicture(event.dataTransfer?.files[0]);
  });
}

function wireSee() {
  find("method").onchange = guarded(chooseMethod);
  for (const radio of document.querySelectorAll("[name=level]")) radio.onchange = guarded(() => chooseLevel(radio.value));
  for (const radio of document.querySelectorAll("[name=smooth]")) radio.onchange = guarded(async () => {
    state.smooth = radio.value === "smooth";
    showRelevance(toggleAndSave);
    save();
    await showBeside();
  });
  find("opacity").oninput = () => {
    state.opacity = Number(find("opacity").value);
    showHidden();
    save();
  };
  find("opacity").onchange = guarded(showBeside);
  find("layer").oninput = () => {
    state.layer = Number(find("layer").value);
    showAnswer(toggleAndSave);
    save();
  };
}

function wireTest() {
  find("share").oninput = () => {
    hideTop(Number(find("share").value));
    save();
  };
  find("reset").onclick = guarded(async () => {
    state.hidden = [];
    showRelevance(toggleAndSave);
    save();
    await measure();
  });
}

function wireKeep() {
  for (const button of document.querySelectorAll("[data-file]")) button.onclick = () => download(button.dataset.file);
  find("link").onclick = copyLink;
  find("beside").onclick = guarded(async () => {
    state.beside.push({ method: find("other-method").value, target: find("other-target").value, model: find("other-model").value });
    save();
    await showBeside();
  });
  document.addEventListener("beside", guarded(async () => {
    save();
    await showBeside();
  }));
}

function wireTheme() {
  const themes = ["automatic", "light", "dark"];
  let chosen = 0;
  find("theme").onclick = () => {
    chosen = (chosen + 1) % themes.length;
    document.body.dataset.theme = themes[chosen];
    find("theme").textContent = `Theme: ${themes[chosen]}`;
  };
}

async function start() {
  const { models, methods, characters, runs } = await api.lists();
  [found.models, found.methods] = [models, methods];
  showCharacters(characters);
  wireAsk();
  wireSee();
  wireTest();
  wireKeep();
  wireTheme();
  startBrowsing(runs, guarded, openExample);
  await guarded(open)(location.hash);
  addEventListener("hashchange", guarded(() => open(location.hash)));
  document.body.dataset.ready = "true";
}

async function open(hash) {
  let given = null;
  try {
    given = link.read(hash);
    if (given) restore(given);
  } finally {
    fillForm();
    fillView();
  }
  if (!given || (form.kind === "image" ? !state.image : !state.text)) return;
  readForm();
  await answer(arrive);
}

guarded(start)();

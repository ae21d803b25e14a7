// Ask, see, test, keep: the page's wiring.

import * as api from "./api.js";
import { fillBeside, showBeside, wireBeside } from "./beside.js";
import { startBrowsing } from "./browse.js";
import { fillOptions, onOptions, spelled } from "./choice.js";
import { complain, find, make, options, percent } from "./dom.js";
import { fillForm, fitting, readForm, wireForm, wirePicture } from "./form.js";
import * as link from "./link.js";
import { loaded } from "./photo.js";
import { showAnswer, showHidden, showRelevance } from "./see.js";
import { alike, found, question, saved, state, unasked, understood, wanted } from "./state.js";
import { showCharacters } from "./text.js";
import { hideTop, measure, onProblem, startTrial, toggle } from "./trial.js";

const LARGEST = 8_000_000;
const KEPT = 30;
const QUICK = ["trans-att", "att-cat", "rollout", "raw-attention", "attention-gradcam", "gradient-x-input", "lrp", "cat", "att-grads"];
const visit = [];
let asking = new AbortController();
let turn = 0; // what the user did last
let pending = null; // a question from a link that waits for its photo

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

const ask = (changes = {}) => answer({ ...changes, ...readForm() });

const usePicture = guarded(async (file) => {
  if (!file) return;
  if (file.size > LARGEST) throw new Error(`The photo has ${(file.size / 1e6).toFixed(1)} MB; up to 8 MB are taken.`);
  if (!fitting("image").length) throw new Error("No model of this server reads photos.");
  const image = await inTurn(api.address(file));
  if (!image) return;
  fillForm({ kind: "image", image, imageName: file.name });
  await (pending ? answer({ ...pending.question, ...readForm() }, pending.view) : ask());
});

// What is being read, unless the user has gone on to something else meanwhile.
async function inTurn(reading) {
  const own = ++turn;
  try {
    const value = await reading;
    return own === turn ? value : null;
  } catch (error) {
    if (own === turn) throw error;
    return null;
  }
}

// --- see, test ---------------------------------------------------------------------------------------------------

// Asks what is wanted, with these changes; once it is answered, shows the answer and everything that follows from it.
async function answer(changes, view = null) {
  turn += 1;
  pending = null;
  asking.abort();
  asking = new AbortController();
  Object.assign(state, changes);
  if ("method" in changes) fillMethod();
  const { signal } = asking, asked = wanted();
  document.body.classList.add("busy");
  try {
    const photo = asked.kind === "image" ? await loaded(asked.image) : null;
    const answer = await api.explain(question({}, asked), signal);
    if (signal.aborted) return;
    arrive({ photo, answer, asked }, view);
  } catch (error) {
    if (signal.aborted) return;
    goBack();
    throw error;
  } finally {
    if (asking.signal === signal) document.body.classList.remove("busy");
  }
  for (const step of [startTrial, showBeside, prefetch]) {
    if (!signal.aborted) await guarded(step)(signal);
  }
}

// An answer is there: what belonged to another input is left behind.
function arrive(news, view) {
  const before = found.asked;
  Object.assign(found, news);
  if (view) Object.assign(state, view);
  else if (!alike(before, found.asked)) [state.hidden, state.layer] = [[], 0];
  state.hidden = state.hidden.filter((place) => found.answer.tokens[place]?.special === false);
  if (view) fillView();
  fillBeside(before?.model !== found.asked.model);
  find("problems").replaceChildren();
  find("kept").textContent = "";
  showAnswer(toggleAndSave);
  save();
  if (!alike(before, found.asked) || before.target !== state.target || before.versus !== state.versus) remember();
}

// What could not be answered is wanted no more: the page stays with what it shows, the form as it was filled in.
function goBack() {
  Object.assign(state, found.asked ?? unasked);
  fillMethod();
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

const chooseMethod = () => answer({ method: find("method").value, options: {} });
const chooseOptions = (options) => answer({ options });

async function chooseLevel(level) {
  state.level = level;
  state.hidden = [];
  showRelevance(toggleAndSave);
  save();
  for (const step of [startTrial, showBeside]) await guarded(step)();
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
  if (found.asked.kind === "image" && !link.portable(saved()).image) throw new Error("This photo is too large to travel in a link: keep it as a page instead.");
  await navigator.clipboard.writeText(location.href);
  find("kept").textContent = "Link copied";
});

// The questions of this visit, the latest first and each once.
function remember() {
  const { kind, text, second, imageName, method } = found.asked;
  const title = kind === "image" ? imageName || "a photo" : [text, kind === "pair" && second].filter(Boolean).join(" · ");
  const share = found.answer.probability === null ? "" : ` ${percent(found.answer.probability)}`;
  const one = { title, said: `${found.answer.label}${share} · ${method}`, key: JSON.stringify(question()), state: structuredClone(saved()) };
  const others = visit.filter((other) => other.key !== one.key);
  visit.splice(0, visit.length, one, ...others.slice(0, KEPT - 1));
  find("visit").replaceChildren(...visit.map((one) => {
    const button = make("button", { type: "button", onclick: guarded(() => recall(one.state)) }, make("span", { textContent: one.title }), make("span", { textContent: one.said }));
    return make("li", {}, button);
  }));
}

function recall(given) {
  find("see").focus();
  return show(given);
}

// An example of a run becomes the question, on the run's model where this server has it.
async function openExample(example, method, run) {
  const input = await inTurn(example.picture ? pictureOf(example, run) : textOf(example));
  if (!input) return;
  const known = found.models.some((one) => one.name === example.model);
  fillForm({ ...input, ...(known ? { model: example.model } : {}), target: "", versus: "" });
  find("see").focus();
  const [name, options] = spelled(method);
  await ask(found.methods.some((one) => one.name === name) ? { method: name, options } : {});
}

const pictureOf = async ({ example }, run) => ({ kind: "image", image: await api.picture(run, example), imageName: example });

function textOf({ text: [text, second = ""] }) {
  return { kind: second ? "pair" : "text", text, second };
}

// --- start -------------------------------------------------------------------------------------------------------

function fillMethod() {
  find("method").value = state.method;
  fillOptions(chooseOptions);
}

function fillView() {
  find("opacity").value = state.opacity;
  for (const radio of document.querySelectorAll("[name=level]")) radio.checked = radio.value === state.level;
  for (const radio of document.querySelectorAll("[name=smooth]")) radio.checked = (radio.value === "smooth") === state.smooth;
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
    find("share").focus();
    await measure();
  });
}

function wireKeep() {
  for (const button of document.querySelectorAll("[data-file]")) button.onclick = () => download(button.dataset.file);
  find("link").onclick = copyLink;
  wireBeside(guarded(async () => {
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

// The address keeps the question, so the skip link must not take its place.
function wireSkip() {
  document.querySelector(".skip").onclick = (event) => {
    event.preventDefault();
    find("see").focus();
  };
}

async function start() {
  const { models, methods, characters, runs } = await api.lists();
  [found.models, found.methods] = [models, methods];
  showCharacters(characters);
  for (const id of ["method", "other-method"]) options(find(id), methods.map((one) => [one.name, one.name]), state.method);
  fillForm();
  fillMethod();
  wireForm(guarded(() => ask()));
  wirePicture(usePicture);
  wireSee();
  wireTest();
  wireKeep();
  wireTheme();
  wireSkip();
  startBrowsing(runs, guarded, openExample);
  const open = guarded(() => show(link.read(location.hash)));
  addEventListener("hashchange", open);
  open();
  find("explain").disabled = false;
  document.body.dataset.ready = "true";
}

// A question from a link or from this visit, with the view that it was seen in.
async function show(given) {
  if (given === null) return;
  const wished = understood(given);
  fillForm(wished.question);
  if (wished.question.kind === "image" && !wished.question.image) return waitFor(wished);
  await answer({ ...wished.question, ...readForm() }, wished.view);
}

function waitFor(wished) {
  turn += 1;
  pending = wished;
  complain("The photo was too large to travel in this link. Choose it, and it is explained as the link says.");
}

guarded(start)();

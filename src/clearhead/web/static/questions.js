// Takes questions from the form, a file, a link, the history, a run or data, and shows their explanations.

import { fetchChosen, fillGrid } from "./answers.js";
import { createTicket, fetchExplanation, fetchSample, fetchSourceImage, readDataUrl } from "./api.js";
import { showChecked } from "./check_view.js";
import { fillComparison, showComparison } from "./comparison.js";
import { find } from "./dom.js";
import { fillEdit } from "./edit.js";
import { clearErrors, guard, showError } from "./errors.js";
import { showExplanation } from "./explanation_view.js";
import { fillForm, isComplete, kindOfPhoto, markStale, modelsForKind, readForm } from "./form.js";
import { addToHistory } from "./history.js";
import { loadImage } from "./image_view.js";
import { parseSnapshot, updateAddress } from "./link.js";
import { fillMethodMenu } from "./method_menu.js";
import { fillOptions, parseMethod } from "./method_options.js";
import { startTest } from "./perturbation_test.js";
import { checkShownText } from "./similarity_view.js";
import {
  askedQuestion, DEFAULT_QUESTION, explainFields, findMethod, findModel, hasSameInput, hasPhoto, isAnswer, isCompared, isSimilarity, pick, session, state,
} from "./state.js";
import { startWorking, stopWorking } from "./working.js";

const MAX_FILE_BYTES = 8_000_000;
const MOSTLY = 0.6;
const NARROW = "(max-width: 60rem)"; // as in page.css
const PHOTO_TYPES = ["image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp"];
const PREFETCHED = ["balanced-cat", "trans-att", "att-cat", "rollout", "raw-attention", "attention-gradcam", "gradient-x-input", "lrp", "cat", "att-grads"];

// The method that was last used for prompts, and for everything else.
const lastMethods = { true: { method: "attn-lrp", options: {} }, false: pick(DEFAULT_QUESTION, ["method", "options"]) };

let request = new AbortController();
let actions = 0; // counts what the user does, so that slow reading can tell that it was overtaken
let waitingForPhoto = null; // a snapshot from a link that was too small for its photo

export function submitForm(changes = {}) {
  const filled = readForm();
  return explainQuestion({ ...switchMethod(filled), ...changes, ...filled });
}

// The default method of classifiers is slow for language models, so prompts have a method of their own.
function switchMethod({ kind, model }) {
  const isPrompt = kind === "prompt";
  const wasPrompt = state.kind === "prompt";
  if (isPrompt === wasPrompt) return followModel(model);
  lastMethods[wasPrompt] = pick(state, ["method", "options"]);
  return lastMethods[isPrompt];
}

// A method that the user has not changed follows the model, for which another may have been chosen.
function followModel(name) {
  const former = findModel(state.model)?.method ?? DEFAULT_QUESTION.method;
  const model = findModel(name);
  if (!model || name === state.model || parseMethod(former)[0] !== state.method) return {};
  const [method, options] = parseMethod(model.method);
  return { method, options };
}

// Gives up the question that is being answered.
export function stopQuestion() {
  request.abort();
  restoreShownQuestion();
}

export const chooseMethod = () => explainQuestion({ method: find("method").value, options: {} });

// Of a two-tower model: the text that is explained.
export async function chooseText(index) {
  try {
    await explainQuestion({ target: String(index) });
  } finally {
    checkShownText();
  }
}

const chooseOptions = (options) => explainQuestion({ options });

// Shows the method of the question that is being asked, among those of its model.
export function fillMethod() {
  const model = findModel(state.model || find("model").value);
  fillMethodMenu(find("method"), state.kind, model, state.method);
  fillOptions(chooseOptions);
}

// Asks the current question with these changes, then shows its explanation and everything that depends on it.
async function explainQuestion(changes, view = null) {
  actions += 1;
  waitingForPhoto = null;
  request.abort();
  request = new AbortController();
  const { signal } = request;
  Object.assign(state, changes);
  if ("method" in changes || "model" in changes || "kind" in changes) fillMethod();
  await fetchAndShow(askedQuestion(), view, signal);
  const prefetch = isAnswer() ? fillGrid : prefetchMethods;
  find("grid").hidden = true;
  if (!signal.aborted) await Promise.all([guard(showChecked)(), guard(startTest)()]);
  for (const step of [showComparison, prefetch]) {
    if (!signal.aborted) await guard(step)(signal);
  }
}

async function fetchAndShow(question, view, signal) {
  const ticket = createTicket();
  document.body.classList.add("busy");
  startWorking(question, ticket);
  try {
    const photo = hasPhoto(question.kind) ? await loadImage(question.image) : null;
    const explanation = await fetchExplanation(explainFields({}, question), signal, ticket);
    const word = view ? view.word : hasSameInput(session.question, question) ? state.word : null;
    const chosen = await fetchChosen(question, explanation, word, signal);
    if (!signal.aborted) showResult({ question, photo, explanation, chosen }, view);
  } catch (error) {
    if (signal.aborted) return;
    restoreShownQuestion();
    throw error;
  } finally {
    // A later question may already be under way.
    if (request.signal === signal) {
      document.body.classList.remove("busy");
      stopWorking();
    }
  }
}

function showResult(result, view) {
  const previous = session.question;
  Object.assign(session, result);
  updateView(previous, view);
  fillComparison(previous?.model !== session.question.model);
  clearErrors();
  find("save-status").textContent = "";
  showExplanation();
  fillEdit();
  markStale();
  updateAddress();
  if (isNewQuestion(previous)) {
    addToHistory(recall);
    scrollToExplanation();
  }
}

// On small screens the form fills the window, and an example may be chosen further down: the answer would be unseen.
function scrollToExplanation() {
  const { top, bottom } = find("explanation").getBoundingClientRect();
  const isUnseen = bottom < 0 || top > innerHeight * MOSTLY;
  if (matchMedia(NARROW).matches || isUnseen) find("explanation").scrollIntoView({ block: "start" });
}

// Hidden tokens and the block belong to one input; a link brings its own, which may name tokens that do not exist.
function updateView(previous, view) {
  if (view) Object.assign(state, view);
  else if (!hasSameInput(previous, session.question)) Object.assign(state, { hidden: [], layer: 0, word: null });
  state.hidden = state.hidden.filter(canHide);
  if (view) fillViewControls();
}

// Of an answer only the prompt can be hidden.
function canHide(index) {
  const token = session.explanation.tokens?.[index];
  return token?.special === false && (!isAnswer() || token.segment === 0);
}

function fillViewControls() {
  find("opacity").value = state.opacity;
  for (const radio of document.querySelectorAll("[name=check]")) radio.checked = (radio.value === "on") === state.check;
  for (const radio of document.querySelectorAll("[name=level]")) radio.checked = radio.value === state.level;
  for (const radio of document.querySelectorAll("[name=smooth]")) radio.checked = (radio.value === "smooth") === state.smooth;
}

function isNewQuestion(previous) {
  if (isSimilarity()) return !hasSameInput(previous, session.question); // its texts are chosen within the explanation
  return !hasSameInput(previous, session.question) || previous.target !== state.target || previous.versus !== state.versus;
}

// After an error the page stays with the question that it shows; the form keeps what was typed.
function restoreShownQuestion() {
  Object.assign(state, session.question ?? DEFAULT_QUESTION);
  fillMethod();
}

// All methods share the forward pass on the server, so the fast ones are fetched before they are chosen.
async function prefetchMethods(signal) {
  if (isSimilarity()) return;
  for (const method of PREFETCHED) {
    if (signal.aborted) return;
    await fetchExplanation(explainFields({ method }), signal).catch(() => null);
  }
}

export const usePhoto = guard(async (file) => {
  if (!file) return;
  checkPhoto(file);
  const image = await unlessOvertaken(readDataUrl(file));
  if (!image) return;
  fillForm({ kind: kindOfPhoto(), image, imageName: file.name });
  if (waitingForPhoto) await explainSnapshot(waitingForPhoto);
  else await submitPhoto();
});

// A photo that is compared with texts may wait for them.
async function submitPhoto() {
  if (isComplete()) await submitForm();
  else find("texts").focus();
}

function checkPhoto(file) {
  if (file.size > MAX_FILE_BYTES) throw new Error(`The photo has ${(file.size / 1e6).toFixed(1)} MB: at most 8 MB are accepted.`);
  if (!PHOTO_TYPES.includes(file.type)) throw new Error(describeOtherFile(file));
  if (!modelsForKind(kindOfPhoto()).length) throw new Error("No model of this server reads photos.");
}

// Browsers and the server read the same formats; photos of others have to be converted.
function describeOtherFile({ name }) {
  const ending = name.split(".").at(-1).toLowerCase();
  const isPhoto = ["heic", "heif", "tif", "tiff", "avif", "raw", "dng", "svg"].includes(ending);
  if (isPhoto) return `${ending.toUpperCase()} photos cannot be read here: save it as JPEG or PNG first.`;
  return `${name} is no photo: choose a JPEG, PNG, WebP, GIF or BMP.`;
}

// Explains the photo that comes with the page.
export const useSample = guard(async () => {
  const image = await unlessOvertaken(fetchSample().then(readDataUrl));
  if (!image) return;
  fillForm({ kind: kindOfPhoto(), image, imageName: "chelsea.jpg" });
  await submitPhoto();
});

// What a promise resolves to, or null if the user has done something else meanwhile.
async function unlessOvertaken(promise) {
  const action = ++actions;
  try {
    const value = await promise;
    return action === actions ? value : null;
  } catch (error) {
    if (action === actions) throw error;
    return null;
  }
}

// Opens a question from a link or from the history, with its view.
export async function openSnapshot(data) {
  if (data === null) return;
  const snapshot = parseSnapshot(data);
  const { question } = snapshot;
  // The text that is explained is chosen below the form, not in it.
  fillForm(isCompared(question.kind) ? { ...question, target: "" } : question);
  if (hasPhoto(question.kind) && !question.image) waitForPhoto(snapshot);
  else await explainSnapshot(snapshot);
}

const explainSnapshot = ({ question, view }) =>
  explainQuestion({ ...question, ...readForm(), ...pick(question, ["target", "versus"]) }, view);

function waitForPhoto(snapshot) {
  actions += 1;
  waitingForPhoto = snapshot;
  showError("The photo was too large for this link. Choose the file, and it is explained as the link says.");
}

function recall(snapshot) {
  find("explanation").focus();
  return openSnapshot(snapshot);
}

// Opens an example of a run or task, with the model, and of a run the method, if this server has them.
export async function openExample(example, spec, source) {
  const input = await unlessOvertaken(example.picture ? readSourceImage(example, source) : readSourceText(example));
  if (!input) return;
  const model = findModel(example.model) ? { model: example.model } : {};
  fillForm({ ...input, ...model, target: "", versus: "" });
  session.example = { ...input, gold: example.gold };
  find("explanation").focus();
  const [method, options] = parseMethod(spec);
  await submitForm(findMethod(method) ? { method, options } : {});
}

const readSourceImage = async ({ example }, source) => ({ kind: "image", image: await fetchSourceImage(source, example), imageName: example });

function readSourceText({ text: [text, second = ""] }) {
  return { kind: second ? "pair" : "text", text, second };
}

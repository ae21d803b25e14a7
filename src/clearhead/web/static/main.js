// Start of the page: loads the lists of the server and connects the controls.

import { chooseWord, wireGrid } from "./answers.js";
import { fetchCatalogue, fetchFile } from "./api.js";
import { showCheck, showChecked } from "./check_view.js";
import { showComparison, wireComparison } from "./comparison.js";
import { createElement, find } from "./dom.js";
import { wireEdit } from "./edit.js";
import { guard, reportError } from "./errors.js";
import { onChooseWord, onToggle, showExplanation, showHidden, showRelevance } from "./explanation_view.js";
import { fillForm, wireForm, wirePhotoInput } from "./form.js";
import { decodeLink, fitsInLink, updateAddress } from "./link.js";
import { hideTop, measureHidden, startTest, toggleTokens } from "./perturbation_test.js";
import { chooseMethod, chooseText, fillMethod, openExample, openSnapshot, stopQuestion, submitForm, usePhoto, useSample } from "./questions.js";
import { startRuns } from "./runs.js";
import { onChooseText } from "./similarity_view.js";
import { checkFields, isAnswer, session, state, takeSnapshot } from "./state.js";
import { setInvisibleRanges } from "./text_view.js";

const THEMES = ["automatic", "light", "dark"];
const DOWNLOAD_LIFETIME_MS = 10_000;
const MAX_FILE_LABEL = 40;
const THEME_KEY = "clearhead-theme";

addEventListener("error", (event) => reportError(event.error ?? event.message));
addEventListener("unhandledrejection", (event) => reportError(event.reason));

async function chooseLevel(level) {
  state.level = level;
  state.hidden = [];
  showRelevance();
  updateAddress();
  for (const step of [startTest, showComparison]) await guard(step)();
}

// Without the check, some methods are computed with fewer digits: what is tested and compared may be another order.
async function switchCheck(isOn) {
  state.check = isOn;
  updateAddress();
  await Promise.all([guard(showChecked)(), guard(startTest)()]);
  await showComparison();
}

async function chooseSmoothness(isSmooth) {
  state.smooth = isSmooth;
  showRelevance();
  updateAddress();
  await showComparison();
}

function wireExplanation() {
  onToggle((tokens) => {
    toggleTokens(tokens);
    updateAddress();
  });
  onChooseWord(guard(chooseWord));
  onChooseText(guard(chooseText));
  wireGrid();
  find("stop").onclick = stopQuestion;
  find("method").onchange = guard(chooseMethod);
  for (const radio of document.querySelectorAll("[name=level]")) radio.onchange = guard(() => chooseLevel(radio.value));
  for (const radio of document.querySelectorAll("[name=smooth]")) {
    radio.onchange = guard(() => chooseSmoothness(radio.value === "smooth"));
  }
  for (const radio of document.querySelectorAll("[name=check]")) radio.onchange = guard(() => switchCheck(radio.value === "on"));
  wireSliders();
}

function wireSliders() {
  find("opacity").oninput = () => {
    state.opacity = Number(find("opacity").value);
    showHidden();
    updateAddress();
  };
  find("opacity").onchange = guard(showComparison); // once the slider is released
  find("layer").oninput = () => {
    state.layer = Number(find("layer").value);
    showExplanation();
    showCheck();
    updateAddress();
  };
  find("layer").onchange = guard(startTest); // the test is of the block that is shown
}

function wireTest() {
  find("share").oninput = () => {
    hideTop(Number(find("share").value));
    updateAddress();
  };
  find("reset").onclick = guard(async () => {
    state.hidden = [];
    showRelevance();
    updateAddress();
    find("share").focus(); // the button is disabled now
    await measureHidden();
  });
}

function wireSave() {
  for (const button of document.querySelectorAll("[data-file]")) button.onclick = guard(() => download(button.dataset.file));
  find("link").onclick = guard(copyLink);
  wireComparison(guard(async () => {
    updateAddress();
    await showComparison();
  }));
}

async function download(type) {
  const url = URL.createObjectURL(await fetchFile(type, fileFields()));
  const name = nameFile(type);
  createElement("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), DOWNLOAD_LIFETIME_MS); // the browser reads it after click() has returned
  find("save-status").textContent = `Saved ${name}`;
}

// Named by what it explains, so that several files can be told apart.
function nameFile(type) {
  const { label, method } = session.explanation;
  const plain = `${label.slice(0, MAX_FILE_LABEL)}-${method}`.normalize("NFKD").replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "");
  return `clearhead-${plain}.${type}`;
}

// The file of an answer explains every word of it, as the page does.
const fileFields = () => (isAnswer() ? { ...checkFields(), matrix: true } : checkFields());

async function copyLink() {
  updateAddress();
  if (!fitsInLink(takeSnapshot())) throw new Error("This photo is too large for a link: save it as a page instead.");
  await navigator.clipboard.writeText(location.href);
  find("save-status").textContent = "Link copied";
}

function wireTheme() {
  let chosen = Math.max(0, THEMES.indexOf(localStorage.getItem(THEME_KEY)));
  const show = () => {
    document.body.dataset.theme = THEMES[chosen];
    find("theme").textContent = `Theme: ${THEMES[chosen]}`;
  };
  find("theme").onclick = () => {
    chosen = (chosen + 1) % THEMES.length;
    localStorage.setItem(THEME_KEY, THEMES[chosen]);
    show();
  };
  show();
}

// Following the skip link would replace the question in the address.
function wireSkipLink() {
  document.querySelector(".skip").onclick = (event) => {
    event.preventDefault();
    find("explanation").focus();
  };
}

function wireControls() {
  wireForm(guard(() => submitForm()), useSample);
  wirePhotoInput(usePhoto);
  wireExplanation();
  wireTest();
  wireSave();
  wireEdit();
  wireTheme();
  wireSkipLink();
}

async function start() {
  const { models, methods, characters, choices, runs, tasks } = await fetchCatalogue();
  Object.assign(session, { models, methods, choices });
  setInvisibleRanges(characters);
  fillForm();
  fillMethod();
  wireControls();
  startRuns(runs, tasks, openExample);
  const openLink = guard(() => openSnapshot(decodeLink(location.hash)));
  addEventListener("hashchange", openLink);
  openLink();
  find("explain").disabled = false;
  document.body.dataset.ready = "true";
}

guard(start)();

// The explanation: prediction, classes, and the text or photo with the colours of its relevance.

import { checkWord, colorWords, describeAnswer, renderAnswer, renderShares } from "./answer_view.js";
import { createBar, createElement, find } from "./dom.js";
import { createImageLegend, createLegend, imageSettings, relevanceOf, renderCoverage } from "./explanation_parts.js";
import { formatPercent } from "./format.js";
import { renderHeads, scaleHeads } from "./heads_view.js";
import * as imageView from "./image_view.js";
import { scaleShares } from "./scale.js";
import { describeInputs, nameChoices, showInputs, showSimilarity } from "./similarity_view.js";
import { findMethod, formatOutput, isAnswer, isRegression, isSimilarity, session, shownModel, state } from "./state.js";
import * as textView from "./text_view.js";

const MAX_CLASSES = 5;
const LONG_TEXT = 400; // words that still stand on the page as a whole; longer texts scroll
const PANELS = ["explanation-body", "save"];
const CLASS_PANELS = ["test", "compare"]; // not of similarities

// What is on the page: features (words, tokens or patches) with their elements, and the image if there is one.
const view = { features: [], items: [], image: null, values: [], scale: null };
let toggleTokens = () => {};
let chooseWord = () => {};
let answerView = { group: null, items: [] };

export const onToggle = (handler) => (toggleTokens = handler);
export const onChooseWord = (handler) => (chooseWord = handler);

// Words, tokens or patches on the page, with the indices of their tokens and their relevance.
export const shownFeatures = () => view.features;

export function showExplanation() {
  const { explanation } = session;
  find("empty").hidden = true;
  for (const id of PANELS) find(id).hidden = false;
  for (const id of CLASS_PANELS) find(id).hidden = isSimilarity();
  for (const id of ["similarity", "no-test"]) find(id).hidden = !isSimilarity();
  for (const id of ["answer-view", "shares"]) find(id).hidden = !isAnswer();
  find("prediction").hidden = isAnswer() || isSimilarity();
  if (isSimilarity()) {
    showSimilarity(explanation);
    showRelevance();
    showDiagnosis();
    return;
  }
  if (isAnswer()) showAnswer(explanation);
  else showDecision(explanation);
  showControls(explanation);
  showBlock(explanation);
  showRelevance();
  showHeads(explanation);
  showDiagnosis();
}

function showAnswer(explanation) {
  answerView = renderAnswer(explanation, state.word, chooseWord);
  find("answer").replaceChildren(answerView.group);
}

function showDecision(explanation) {
  showPrediction(explanation);
  showClasses(explanation);
}

function showPrediction(explanation) {
  const output = isRegression() ? explanation.classes[0] : explanation.probability;
  const number = explanation.contrast ? describeContrast(explanation.contrast) : output === null ? "" : ` ${formatOutput(output)}`;
  const note = createElement("small", { textContent: describePrediction(explanation) });
  find("verdict").replaceChildren(`${explanation.label}${number}`, note);
  showGold(explanation);
}

// The two probabilities whose difference a contrast explains.
const describeContrast = ([first, second]) => `: ${formatPercent(first)} against ${formatPercent(second)}`;

// The right label of an example of a run, as long as its input is shown.
function showGold({ diagnostics: { predicted } }) {
  const { example, question } = session;
  const isShown = example?.gold && ["text", "image"].every((key) => !(key in example) || example[key] === question[key]);
  find("gold").hidden = !isShown;
  if (!isShown) return;
  const isWrong = predicted && predicted !== example.gold;
  find("gold").className = isWrong ? "gold wrong" : "gold";
  find("gold").replaceChildren(...textView.markText(`Right label: ${example.gold}${isWrong ? ` ✗ (predicted ${predicted})` : " ✓"}`));
}

function describePrediction({ diagnostics: { predicted }, target }) {
  // The words of a masked word have no list here, and the most probable is explained.
  const { labels } = shownModel();
  const isOther = predicted && labels.length && predicted !== labels[target.index];
  return isOther ? `The model itself predicts ${predicted}.` : "The model's prediction, explained below.";
}

// The most probable classes, and those that the question names.
function showClasses({ classes, target }) {
  const ranked = classes.map((share, index) => ({ share, index })).sort((first, second) => second.share - first.share);
  const named = [target.index, target.versus];
  const shown = isRegression() ? [] : ranked.filter(({ index }, rank) => rank < MAX_CLASSES || named.includes(index));
  find("classes").replaceChildren(...shown.map(({ share, index }) => createClassRow(share, index, target)));
}

function createClassRow(share, index, target) {
  const label = shownModel().labels[index];
  const name = createElement("span", { textContent: label, title: label });
  const number = createElement("span", { className: "share", textContent: formatPercent(share) });
  const className = index === target.index ? "chosen" : "";
  return createElement("li", { className }, name, createBar(share), number);
}

function showControls(explanation) {
  const isImage = explanation.grid !== null;
  find("levels").hidden = isImage || explanation.words === null || textView.hasLargerUnits(explanation);
  find("smoothness").hidden = !isImage;
  nameChoices();
  find("opacity-control").hidden = !isImage;
  find("smooth-name").textContent = explanation.pixels ? "Pixels" : "Smooth";
  const method = findMethod(explanation.method);
  find("method-summary").textContent = method ? `${method.summary} (${method.paper})` : "";
}

// The slider of blocks: 0 is the relevance of all blocks together.
function showBlock({ layers }) {
  const blocks = layers?.length ?? 0;
  find("layers").hidden = layers === null;
  state.layer = Math.min(state.layer, blocks);
  find("layer").max = blocks;
  find("layer").value = state.layer;
  find("layer-name").textContent = state.layer ? `${state.layer} of ${blocks}` : "all";
  find("layer").setAttribute("aria-valuetext", state.layer ? `block ${state.layer} of ${blocks}` : "all blocks");
}

function showHeads(explanation) {
  const { heads } = explanation;
  find("heads").hidden = heads === null;
  if (heads === null) return;
  find("head-grid").replaceChildren(renderHeads(heads), ...createLegend(explanation, scaleHeads(heads)));
}

function relevanceOfBlock(explanation) {
  if (!state.layer || !explanation.layers) return relevanceOf(explanation);
  return explanation.layers[state.layer - 1].map((value) => value ?? 0);
}

export function showRelevance() {
  const { chosen } = session;
  if (isSimilarity()) {
    showInputs(chosen);
    return;
  }
  find("coverage").replaceChildren(...renderCoverage(chosen));
  const values = relevanceOfBlock(chosen);
  if (chosen.grid) showImage(chosen, values);
  else if (chosen.answer) showPrompt(chosen, values);
  else showText(chosen, values);
  showHidden();
}

// The prompt on the colours of what is explained, and the answer's words on those of what follows them.
function showPrompt(chosen, values) {
  const spans = textView.splitText(chosen, state.level, values);
  const { scale } = chosen;
  const features = spans.filter((span) => span.segment === 0);
  const { group, items } = textView.renderText({ text: chosen.text?.[0] ?? null }, features, scale, toggleFeature);
  group.classList.add("prompt");
  Object.assign(view, { features, items, image: null, values: [], scale });
  colorWords(answerView.items, session.explanation.answer.words, spans, scale);
  checkWord(answerView.group, state.word);
  find("relevance").replaceChildren(createElement("h3", { textContent: "Prompt" }), group);
  find("answer-summary").textContent = `${nameChosen(chosen)}: ${describeAnswer(chosen)}`;
  find("shares").replaceChildren(...renderShares(chosen), createElement("p", { className: "ch-faint", textContent: chosen.answer.sink }));
  const label = nameChosen(chosen);
  find("legend").replaceChildren(...createLegend({ label }, scale));
  showDiagnosis();
}

const nameChosen = (chosen) => (state.word ? `“${chosen.label}”` : chosen.answer.start);

const toggleFeature = (index) => toggleTokens(view.features[index].tokens);

function showText(explanation, values) {
  const spans = textView.splitText(explanation, state.level, values);
  const scale = state.layer ? scaleShares(spans.map((span) => span.value), "words") : explanation.scale;
  const { group, items } = textView.renderText(explanation, spans, scale, toggleFeature);
  Object.assign(view, { features: spans, items, image: null, values: [], scale });
  group.classList.toggle("long", spans.length > LONG_TEXT);
  find("relevance").replaceChildren(group);
  find("legend").replaceChildren(...createLegend(explanation, scale));
}

function showImage(explanation, allValues) {
  const patches = explanation.tokens.flatMap((token, index) => (token.special ? [] : [index]));
  const features = patches.map((index) => ({ tokens: [index] }));
  const values = patches.map((index) => allValues[index]);
  const scale = state.layer ? { ...scaleShares(values, "patches"), full: imageView.findFull(values) } : explanation.scale;
  const image = imageView.createImageView(explanation, session.photo, toggleFeature);
  Object.assign(view, { features, items: image.items, image, values, scale });
  find("relevance").replaceChildren(placeBesideOriginal(image.frame));
  find("legend").replaceChildren(...createImageLegend(explanation, values, scale));
}

function placeBesideOriginal(frame) {
  const original = createElement("img", { src: session.photo.src, alt: "The photo itself", className: "original" });
  const caption = createElement("figcaption", { textContent: "Original" });
  return createElement("div", { className: "both" }, frame, createElement("figure", {}, original, caption));
}

// Marks what is hidden in the text or photo.
export function showHidden() {
  if (isSimilarity()) {
    showInputs(session.chosen);
    return;
  }
  const hidden = new Set(state.hidden);
  const isHidden = view.features.map(({ tokens }) => tokens.length > 0 && tokens.every((token) => hidden.has(token)));
  if (view.image) showHiddenPatches(isHidden);
  else showHiddenWords(isHidden);
}

function showHiddenWords(isHidden) {
  view.items.forEach((item, index) => {
    item.ariaPressed = String(isHidden[index]);
    item.classList.toggle("is-hidden", isHidden[index]);
  });
}

function showHiddenPatches(isHidden) {
  view.items.forEach((item, index) => (item.ariaSelected = String(isHidden[index])));
  const hidden = new Set(isHidden.flatMap((value, index) => (value ? [index] : [])));
  const description = imageView.describeHeatmap(session.explanation, view.values, view.scale);
  imageView.paintImage(view.image, view.values, view.scale, { ...imageSettings(), hidden, description });
}

export const showDiagnosis = () => (find("diagnosis").textContent = describeShown(session.chosen));

const describeShown = (chosen) => (isSimilarity() ? describeInputs(chosen) : describeDiagnostics(chosen));

// The note on the first token of an answer stands below the shares, the error bar with the check.
const describeDiagnostics = ({ answer, trust, notes }) =>
  notes.filter((note) => ![answer?.sink, trust.error].includes(note)).join(" · ");

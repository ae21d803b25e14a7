// The test of an answer: words or sentences of the prompt are hidden, and the log-probability of the answer moves.

import { fetchHidden } from "./api.js";
import { createBarRow, createElement, find } from "./dom.js";
import { shownFeatures } from "./explanation_view.js";
import { formatNumber } from "./format.js";
import { formatRelevance } from "./scale.js";
import { inputFields, session, state } from "./state.js";
import { describeControls } from "./test_words.js";

const OUTPUTS = ["bars", "test-result", "hidden-summary"];

let request = new AbortController();

const setBusy = (isBusy) => OUTPUTS.forEach((id) => (find(id).ariaBusy = String(isBusy)));
const unitName = () => (state.level === "word" ? "words" : "tokens");
const isContrast = () => !state.word && session.question.foil.trim() !== "";
const scoreName = () => (isContrast() ? "difference of logits" : "log p");

export async function startAnswerTest(toggleTokens) {
  find("share").disabled = false;
  find("share").max = shownFeatures().length;
  find("test-hint").textContent = `Hide ${unitName()} of the prompt: they are deleted, and the ${scoreName()} of the same answer is measured again. If the explanation is right, it falls more than when as many are hidden at random.`;
  find("click-hint").textContent = `Or choose ${unitName()} in the prompt above${hasSources() ? ", or sentences here" : ""}.`;
  showSources(toggleTokens);
  await measureAnswer();
}

// Hides the most relevant words of the prompt.
export function hideTopWords(count) {
  const ranked = [...shownFeatures()].sort((first, second) => second.value - first.value);
  state.hidden = ranked.slice(0, count).flatMap(({ tokens }) => tokens).sort((first, second) => first - second);
}

const isHidden = (tokens, hidden) => tokens.length > 0 && tokens.every((token) => hidden.has(token));

export async function measureAnswer() {
  request.abort();
  request = new AbortController();
  const { signal } = request;
  const isCurrent = followShown(signal);
  const count = countHidden();
  const hidden = count ? [[], state.hidden] : [[]];
  const body = { ...inputFields({ word: state.word }), unit: state.level };
  setBusy(true);
  try {
    const { values } = await fetchHidden({ ...body, hidden }, signal);
    if (isCurrent()) showValues(count, values);
    if (count) await compareWithRandom(count, values, body, isCurrent, signal);
  } finally {
    if (!signal.aborted) setBusy(false);
  }
}

// Whether the question and the word of its answer are still those that are being measured.
function followShown(signal) {
  const { question } = session;
  const { word } = state;
  return () => !signal.aborted && question === session.question && word === state.word;
}

// After the value itself, because it takes many passes.
async function compareWithRandom(count, values, body, isCurrent, signal) {
  if (!isCurrent()) return;
  setBusy(false);
  find("test-result").ariaBusy = "true";
  const { controls } = await fetchHidden({ ...body, hidden: [state.hidden], controls: true }, signal);
  if (isCurrent()) showValues(count, values, controls?.[0] ?? null);
}

function countHidden() {
  const hidden = new Set(state.hidden);
  return shownFeatures().filter(({ tokens }) => isHidden(tokens, hidden)).length;
}

// `controls` is undefined until random choices have been measured, and null if the prompt is too long for them.
function showValues(count, [before, after = before], controls) {
  const total = shownFeatures().length;
  const rows = [["Nothing hidden", before, ""], [`${count} of ${total} ${unitName()}`, after, "now"]];
  if (controls) rows.push(["As many at random", controls.mean, ""]);
  const shown = count ? rows : rows.slice(0, 1);
  const values = shown.map(([, value]) => value);
  find("bars").replaceChildren(...shown.map(([name, value, className]) =>
    createBarRow(name, barLength(value, values), formatNumber(value), className)));
  find("hidden-summary").hidden = !count;
  find("hidden-summary").textContent = `${count} of ${total} ${unitName()} hidden: ${scoreName()} ${formatNumber(before)} → ${formatNumber(after)}`;
  find("test-result").textContent = count ? describeResult(before, after, controls) : "";
  showSlider(count, total);
}

// The mean probability of a token; a difference of logits is scaled to the values beside it.
function barLength(value, values) {
  if (!isContrast()) return Math.exp(value / session.chosen.answer.steps.filter((step) => step.explained).length);
  const low = Math.min(0, ...values);
  return (value - low) / (Math.max(...values) - low || 1);
}

function showSlider(count, total) {
  const top = [...shownFeatures()].sort((first, second) => second.value - first.value).slice(0, count);
  const hidden = new Set(state.hidden);
  const areTop = top.every(({ tokens }) => isHidden(tokens, hidden));
  find("share").value = areTop ? count : 0;
  find("share-name").textContent = areTop ? `${count} of ${total} ${unitName()}` : "…";
  find("share").setAttribute("aria-valuetext", `${count} of ${total} ${unitName()}`);
  find("reset").disabled = !state.hidden.length;
  showHiddenSources();
}

function describeResult(before, after, controls) {
  const result = `The ${scoreName()} ${describeChange(after - before)}`;
  if (controls === null) return `${result}. The prompt is too long to be compared with random choices here.`;
  if (!controls) return `${result}.`;
  const random = describeChange(controls.mean - before);
  return `${result}; with as many hidden at random, it ${random} on average. ${describeControls(controls, formatNumber)}`;
}

function describeChange(change) {
  if (Math.abs(change) < 0.005) return "does not change";
  return `${change > 0 ? "rises" : "falls"} by ${formatNumber(Math.abs(change))}`;
}

const hasSources = () => session.explanation.answer.sources.length > 1;

// A button for each sentence, which hides it. Their relevance is that of the chosen word.
function showSources(toggleTokens) {
  find("sources").hidden = !hasSources();
  if (!hasSources()) return;
  const buttons = session.chosen.answer.sources.map((source) => createSourceButton(source, toggleTokens));
  find("source-list").replaceChildren(...buttons.map((button) => createElement("li", {}, button)));
  showHiddenSources();
}

function createSourceButton(source, toggleTokens) {
  const cells = [source.text, formatRelevance(session.chosen.scale, source.relevance)].map((textContent) => createElement("span", { textContent }));
  const onclick = () => toggleTokens(tokensOf(source));
  return createElement("button", { type: "button", title: source.text, onclick }, ...cells);
}

function tokensOf({ start, end }) {
  return session.explanation.tokens.flatMap((token, index) =>
    token.segment === 0 && !token.special && token.start >= start && token.start < end ? [index] : []);
}

function showHiddenSources() {
  const hidden = new Set(state.hidden);
  const { sources } = session.chosen.answer;
  find("source-list").querySelectorAll("button").forEach((button, index) => {
    const areHidden = isHidden(tokensOf(sources[index]), hidden);
    button.ariaPressed = String(areHidden);
    button.classList.toggle("is-hidden", areHidden);
  });
}

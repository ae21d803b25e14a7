// The test of an answer: words or sentences of the prompt are hidden, and the log-probability of the answer moves.

import { fetchHidden } from "./api.js";
import { createBarRow, createElement, find } from "./dom.js";
import { shownFeatures } from "./explanation_view.js";
import { formatNumber } from "./format.js";
import { formatRelevance } from "./scale.js";
import { inputFields, session, state } from "./state.js";

const RANDOM_SETS = 5;
const NOTICEABLE_CHANGE = 0.1;
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
  const { chosen } = session;
  setBusy(true);
  try {
    const count = countHidden();
    const sets = [[], ...(count ? [state.hidden, ...drawRandomSets(count)] : [])];
    const { values } = await fetchHidden({ ...inputFields({ word: state.word }), hidden: sets }, signal);
    if (!signal.aborted && chosen === session.chosen) showValues(count, values);
  } finally {
    if (!signal.aborted) setBusy(false);
  }
}

function countHidden() {
  const hidden = new Set(state.hidden);
  return shownFeatures().filter(({ tokens }) => isHidden(tokens, hidden)).length;
}

// The same sets for the same prompt and count, so that numbers do not change by themselves.
function drawRandomSets(count) {
  let seed = 1;
  const draw = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  return Array.from({ length: RANDOM_SETS }, () => {
    const shuffled = shownFeatures().map(({ tokens }) => [draw(), tokens]).sort(([first], [second]) => first - second);
    return shuffled.slice(0, count).flatMap(([, tokens]) => tokens);
  });
}

function showValues(count, [before, after = before, ...random]) {
  const total = shownFeatures().length;
  const mean = random.length ? random.reduce((sum, value) => sum + value, 0) / random.length : before;
  const rows = [["Nothing hidden", before, ""], [`${count} of ${total} ${unitName()}`, after, "now"], ["As many at random", mean, ""]];
  const shown = count ? rows : rows.slice(0, 1);
  const values = [before, after, mean];
  find("bars").replaceChildren(...shown.map(([name, value, className]) =>
    createBarRow(name, barLength(value, values), formatNumber(value), className)));
  find("hidden-summary").hidden = !count;
  find("hidden-summary").textContent = `${count} of ${total} ${unitName()} hidden: ${scoreName()} ${formatNumber(before)} → ${formatNumber(after)}`;
  find("test-result").textContent = count ? describeResult(after - before, mean - before) : "";
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

function describeResult(change, randomChange) {
  const verdict = compareChanges(change, randomChange);
  return `The ${scoreName()} ${describeChange(change)}; with as many hidden at random, it ${describeChange(randomChange)}. ${verdict}`;
}

function describeChange(change) {
  if (Math.abs(change) < 0.005) return "does not change";
  return `${change > 0 ? "rises" : "falls"} by ${formatNumber(Math.abs(change))}`;
}

function compareChanges(change, randomChange) {
  if (change < randomChange - NOTICEABLE_CHANGE) return "These matter more than random ones.";
  if (change > randomChange + NOTICEABLE_CHANGE) return "These matter less than random ones.";
  return "These matter no more than random ones.";
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

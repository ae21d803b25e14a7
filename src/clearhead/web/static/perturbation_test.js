// The test: hide the most relevant features, or any others, and compare the model's output with random hiding.

import { hideTopWords, measureAnswer, startAnswerTest } from "./answer_test.js";
import { createTicket, fetchCurve, fetchHidden } from "./api.js";
import { drawChart, interpolate } from "./curve_chart.js";
import { createBarRow, createElement, find } from "./dom.js";
import { reportError } from "./errors.js";
import { showHidden } from "./explanation_view.js";
import { updateAddress } from "./link.js";
import { checkFields, formatOutput, inputFields, isAnswer, isRegression, isSimilarity, session, shownModel, state } from "./state.js";
import { describeControls, describeFlip } from "./test_words.js";
import { trackWork } from "./working.js";

const MEASURE_DELAY_MS = 40; // several choices in a row are measured once
const NUMBERS = ["bars", "test-result", "hidden-summary"];
const COMPARED = ["test-result"];
const OUTPUTS = [...NUMBERS, "chart"];

let curveRequest = new AbortController();
let hideRequest = new AbortController();
let measureTimer = 0;

export async function startTest() {
  curveRequest.abort();
  curveRequest = new AbortController();
  const { signal } = curveRequest;
  if (isSimilarity()) {
    cancelMeasurement();
    session.curve = null;
    return;
  }
  resetTest();
  find("chart").hidden = isAnswer();
  find("chart-status").textContent = "";
  find("sources").hidden = true;
  if (isAnswer()) {
    await startAnswerTest(toggleAndSave);
    return;
  }
  try {
    const curve = await trackCurve({ ...checkFields(), ...blockField(), unit: state.level }, signal);
    if (signal.aborted) return;
    session.curve = curve;
  } catch (error) {
    if (!signal.aborted) showNoCurve();
    throw error;
  }
  find("share").disabled = false;
  find("share").max = session.curve.counts.length - 1;
  await measureHidden();
}

// Says below the chart how far a slow curve is.
async function trackCurve(body, signal) {
  const ticket = createTicket();
  const stop = trackWork("Measuring", ticket, (text) => (find("chart-status").textContent = text));
  try {
    return await fetchCurve(body, signal, ticket);
  } finally {
    stop();
    if (!signal.aborted) find("chart-status").textContent = "";
  }
}

const isContrast = () => session.explanation.target.versus !== null;

// The order is that of what is shown: of all blocks together, or of one.
const blockField = () => (state.layer ? { block: state.layer } : {});

// Until the new curve arrives, what is shown belongs to an earlier question.
function resetTest() {
  cancelMeasurement();
  session.curve = null;
  find("hidden-summary").hidden = true;
  find("share").disabled = true;
  find("reset").disabled = true;
  find("share").removeAttribute("aria-valuetext");
  setBusy(true);
  find("test-hint").textContent = describeTest();
  find("click-hint").textContent = `Or choose ${unitName()} above to hide them one by one.`;
}

function setBusy(isBusy, ids = OUTPUTS) {
  for (const id of ids) find(id).ariaBusy = String(isBusy);
}

function clearOutputs(ids) {
  for (const id of ids) find(id).replaceChildren();
  setBusy(false);
}

// A running measurement is about what was hidden before.
function cancelMeasurement() {
  clearTimeout(measureTimer);
  hideRequest.abort();
}

function describeTest() {
  const block = state.layer ? ` in block ${state.layer}` : "";
  const hint = `Hide the ${unitName()} with the highest relevance${block}. If the explanation is right, the output falls faster than when as many are hidden at random.`;
  // Where deleting words would move what is explained, the check masks them as well.
  const areMasked = session.explanation.target.span || shownModel().focus;
  const removal = unitName() === "patches" || areMasked ? "" : " Here they are masked; the check above deletes them.";
  if (session.explanation.target.versus === null) return `${hint}${removal}`;
  return `${hint}${removal} The numbers are the probability of the first class minus that of the second.`;
}

export function unitName() {
  if (session.explanation?.grid) return "patches";
  return state.level === "word" && session.explanation?.words ? "words" : "tokens";
}

// A step of the slider. Its value is part of the curve; how it compares is measured once the slider rests.
export function hideTop(step) {
  const { curve } = session;
  if (isAnswer()) {
    hideTopWords(step);
    showHidden();
    measureSoon();
    return;
  }
  if (!curve) return;
  const count = curve.counts[step];
  state.hidden = curve.order.slice(0, count).flat();
  showHidden();
  showOutput(count, { value: curve.values[step] }, step);
  measureSoon(COMPARED);
}

// Hides the tokens of a feature, or shows them again if all are hidden.
export function toggleTokens(tokens) {
  const hidden = new Set(state.hidden);
  const isHidden = tokens.every((token) => hidden.has(token));
  for (const token of tokens) isHidden ? hidden.delete(token) : hidden.add(token);
  state.hidden = [...hidden].sort((first, second) => first - second);
  showHidden();
  measureSoon();
}

function measureSoon(ids = NUMBERS) {
  cancelMeasurement();
  if (session.curve || isAnswer()) setBusy(true, ids);
  measureTimer = setTimeout(() => measureHidden().catch(reportError), MEASURE_DELAY_MS);
}

function toggleAndSave(tokens) {
  toggleTokens(tokens);
  updateAddress();
}

// Shows the output with the present choice hidden: at once if it is a step of the curve, then as the model answers.
export async function measureHidden() {
  const { curve } = session;
  if (isAnswer()) {
    await measureAnswer();
    return;
  }
  if (!curve) return;
  cancelMeasurement();
  const features = findHiddenFeatures(curve);
  const step = findStep(curve, features);
  if (step !== null) showOutput(features.length, { value: curve.values[step] }, step);
  if (state.hidden.length) await requestOutput(features.length, step);
}

function findHiddenFeatures(curve) {
  const hidden = new Set(state.hidden);
  return curve.order.filter((tokens) => tokens.every((token) => hidden.has(token)));
}

// The step of the curve at which exactly these features are hidden, or null.
function findStep(curve, features) {
  const step = curve.counts.indexOf(features.length);
  const coversAll = features.flat().length === new Set(state.hidden).size;
  const areTop = features.every((feature, index) => feature === curve.order[index]);
  return step >= 0 && coversAll && areTop ? step : null;
}

// The output first: hiding as many at random takes longer.
async function requestOutput(count, step) {
  hideRequest = new AbortController();
  const { signal } = hideRequest;
  const body = { ...inputFields(), hidden: [state.hidden], unit: state.level };
  setBusy(true, COMPARED);
  try {
    for (const controls of [false, true]) {
      const response = await fetchHidden({ ...body, controls }, signal);
      if (signal.aborted) return;
      showOutput(count, readOutput(response), step);
      setBusy(!controls, COMPARED);
    }
  } catch (error) {
    if (!signal.aborted) showNoOutput();
    throw error;
  }
}

const readOutput = ({ values, classes, controls }) => ({ value: values[0], classes: classes[0], controls: controls?.[0] });

function showNoCurve() {
  clearOutputs(OUTPUTS);
  setSlider(0);
}

function showNoOutput() {
  clearOutputs(NUMBERS);
  setSlider(null);
  find("reset").disabled = false;
  find("chart").replaceChildren(drawChart(session.curve, null, unitName(), formatOutput, isContrast(), find("chart").clientWidth));
}

// The slider stands for the top features only: null means that others were chosen one by one.
function setSlider(step, share = 0) {
  find("share").value = step ?? 0;
  find("share-name").textContent = step === null ? "…" : `${Math.round(share * 100)} %`;
}

function showOutput(count, output, step = null) {
  const { curve } = session;
  const total = curve.counts.at(-1);
  const { value, controls } = output;
  const random = controls?.mean ?? interpolate(curve.counts, curve.random, count);
  const isAnyHidden = state.hidden.length > 0;
  setBusy(false);
  setSlider(step, count / total);
  find("share").setAttribute("aria-valuetext", `${count} of ${total} ${unitName()}`);
  find("reset").disabled = !isAnyHidden;
  showBars(count, value, random);
  showSummary(count, output);
  const marker = isAnyHidden ? { count, value, random } : null;
  find("chart").replaceChildren(drawChart(curve, marker, unitName(), formatOutput, isContrast(), find("chart").clientWidth));
}

function showBars(count, value, random) {
  const { values, counts } = session.curve;
  find("bars").replaceChildren(
    createOutputRow("Nothing hidden", values[0]),
    createOutputRow(`${count} of ${counts.at(-1)} ${unitName()}`, value, "now"),
    createOutputRow("As many at random", random),
  );
}

const createOutputRow = (name, value, className) => createBarRow(name, barLength(value), formatOutput(value), className);

// A probability is its own length, a difference of two begins at −100 %; a regression has the range of the curve.
function barLength(value) {
  if (session.explanation.target.versus !== null) return (value + 1) / 2;
  if (!isRegression()) return value;
  const [low, high] = curveRange();
  return high > low ? (value - low) / (high - low) : 1;
}

function curveRange() {
  const { values, low, high } = session.curve;
  const all = [...values, ...low, ...high];
  return [Math.min(...all), Math.max(...all)];
}

function showSummary(count, { value, classes = [], controls }) {
  const { values, counts } = session.curve;
  const isAnyHidden = state.hidden.length > 0;
  const flip = createElement("strong", { textContent: describeFlip(classes) });
  find("hidden-summary").hidden = !isAnyHidden;
  find("hidden-summary").replaceChildren(`${count} of ${counts.at(-1)} ${unitName()} hidden: ${formatOutput(values[0])} → ${formatOutput(value)}. `, flip);
  find("test-result").textContent = isAnyHidden ? describeResult(value - values[0], controls) : "";
}

function describeResult(change, controls) {
  if (!controls) return `The output ${describeChange(change)}.`;
  const randomChange = controls.mean - session.curve.values[0];
  return `The output ${describeChange(change)}; with as many hidden at random, it ${describeChange(randomChange)} on average. ${describeControls(controls, formatOutput)}`;
}

function describeChange(change) {
  const size = isRegression() ? formatOutput(Math.abs(change)) : `${Math.abs(change * 100).toFixed(1)} points`;
  // Rounded as it is shown, so that the text never says "falls by 0.0 points".
  if (!Number.parseFloat(size)) return "does not change";
  return `${change > 0 ? "rises" : "falls"} by ${size}`;
}

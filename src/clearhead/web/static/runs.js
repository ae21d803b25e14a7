// Benchmark runs and data of the server: a table of examples with right labels, search and slices; each can be opened.

import { addressOfImage, fetchRunExamples, fetchTaskExamples } from "./api.js";
import { createElement, fillGroupedSelect, fillSelect, fillSelectWithNames, find } from "./dom.js";
import { guard } from "./errors.js";
import { formatNumber, formatPercent } from "./format.js";
import { predictAll } from "./predictions.js";
import { findModel } from "./state.js";
import { markText } from "./text_view.js";

const SEARCH_DELAY_MS = 250;
const REFRESH_MS = 1500;
const CHOICES = ["run-method", "run-metric", "run-order", "run-certainty", "run-slice", "run-gold", "run-predicted"];

let latestRequest = 0;
let searchTimer = 0;
let openExample = () => {};
let sources = []; // runs and tasks, each with the key of its option
let listed = []; // the examples in the table
let opened = ""; // the id of the one that was opened last
let predicting = new AbortController();

const findSource = () => sources.find(({ key }) => key === find("run").value);

export function startRuns(runs, tasks, onOpen) {
  sources = [...runs.map((run) => ({ ...run, key: run.name })), ...tasks.map((task) => ({ ...task, key: `task:${task.name}`, isTask: true }))];
  if (!sources.length) return;
  openExample = onOpen;
  find("browse").hidden = false;
  fillSources();
  const showFrom = guard(showExamples);
  find("run").onchange = chooseSource;
  find("run-model").onchange = chooseModel;
  for (const id of CHOICES) find(id).onchange = () => showFrom(0);
  find("run-search").oninput = () => {
    clearTimeout(searchTimer);
    searchTimer = setTimeout(() => showFrom(0), SEARCH_DELAY_MS);
  };
  find("run-more").onclick = () => showFrom(listed.length);
  find("run-previous").onclick = () => openAt(findOpened() - 1);
  find("run-next").onclick = () => openAt(findOpened() + 1);
  chooseSource();
}

// The first that can be read is shown.
function fillSources() {
  const entries = (isTask) => sources.filter((source) => Boolean(source.isTask) === isTask).map(({ key, name }) => [key, name]);
  const groups = [["Runs", entries(false)], ["Data", entries(true)]].filter(([, list]) => list.length);
  fillGroupedSelect(find("run"), groups, (sources.find(({ error }) => !error) ?? sources[0]).key);
}

function chooseSource() {
  predicting.abort();
  const source = findSource();
  for (const element of document.querySelectorAll("[data-source]")) element.hidden = (element.dataset.source === "task") !== Boolean(source.isTask);
  find("run-error").hidden = !source.error;
  find("run-error").textContent = source.error ?? "";
  opened = "";
  if (source.isTask) return chooseTask(source);
  fillRun(source);
  return source.error ? showNothing() : guard(showExamples)(0);
}

function fillRun({ name, methods, metrics, labels }) {
  fillSelectWithNames(find("run-method"), dropFurtherSeeds(methods), find("run-method").value);
  fillSelectWithNames(find("run-metric"), metrics, find("run-metric").value);
  fillLabels(labels);
  find("report").href = `/runs/${encodeURIComponent(name)}`;
}

function fillLabels(labels) {
  for (const id of ["run-gold", "run-predicted"]) fillSelect(find(id), [["", "any"], ...labels.map((label) => [label, label])], find(id).value);
}

function chooseTask({ models }) {
  fillSelectWithNames(find("run-model"), models, find("run-model").value);
  return chooseModel();
}

// Lists the examples at once; their predictions follow.
const chooseModel = guard(async () => {
  predicting.abort();
  predicting = new AbortController();
  const { signal } = predicting;
  const [task, model] = [findSource().name, find("run-model").value];
  fillLabels(findModel(model).labels);
  const { done, total } = await showExamples(0) ?? {};
  if (done === total || signal.aborted) return;
  let refreshed = performance.now();
  await predictAll({ task, model }, signal, async (progress) => {
    const isDue = performance.now() - refreshed > REFRESH_MS || progress.done >= progress.total;
    if (!isDue || signal.aborted) return;
    await refreshExamples();
    refreshed = performance.now();
  });
});

// Of a method with many seeds the first stands for all.
function dropFurtherSeeds(methods) {
  const nameOf = (method) => method.replace(/\bseed=\d+/, "seed");
  return methods.filter((method, index) => methods.findIndex((other) => nameOf(other) === nameOf(method)) === index);
}

function showNothing() {
  latestRequest += 1;
  listed = [];
  showRows({ total: 0, wrong: 0, right: 0 });
}

// Returns how many examples of a task have been predicted.
async function showExamples(start) {
  const request = ++latestRequest;
  const isLatest = () => request === latestRequest;
  setBusy(true);
  if (!start) find("run-more").hidden = true; // it would add to the list that is being replaced
  try {
    const { examples, ...counts } = await fetchExamples({ start });
    if (!isLatest()) return counts.predicted;
    if (!start) opened = "";
    listed = start ? [...listed, ...examples] : examples;
    showRows(counts);
    return counts.predicted;
  } catch (error) {
    if (isLatest() && !start) showNothing();
    throw error;
  } finally {
    if (isLatest()) setBusy(false);
  }
}

// Shows what has been predicted meanwhile, and leaves the list to what the user has asked for since.
async function refreshExamples() {
  const request = latestRequest;
  const { examples, ...counts } = await fetchExamples({ start: 0, count: Math.min(1000, Math.max(50, listed.length)) });
  if (request !== latestRequest) return;
  const focused = [...find("run-examples").children].findIndex((row) => row.contains(document.activeElement));
  const focusedId = listed[focused]?.example;
  listed = examples;
  showRows(counts);
  const index = listed.findIndex(({ example }) => example === focusedId);
  if (index >= 0) find("run-examples").children[index].querySelector("button").focus();
}

function fetchExamples(range) {
  const { name, isTask } = findSource();
  const chosen = { gold: find("run-gold").value, predicted: find("run-predicted").value, search: find("run-search").value.trim() };
  const filled = Object.fromEntries(Object.entries(chosen).filter(([, value]) => value));
  const shared = { slice: find("run-slice").value, ...range, ...filled };
  if (isTask) return fetchTaskExamples(name, { model: find("run-model").value, order: find("run-certainty").value, ...shared });
  return fetchRunExamples(name, { method: find("run-method").value, metric: find("run-metric").value, lowest: find("run-order").value, ...shared });
}

function setBusy(isBusy) {
  find("run-examples").ariaBusy = String(isBusy);
  find("run-more").disabled = isBusy;
}

function showRows({ total, wrong, right, predicted }) {
  find("run-examples").replaceChildren(...listed.map(createRow));
  const counted = wrong + right ? `, ${wrong} of ${wrong + right} wrong` : "";
  const isPartial = predicted && predicted.done < predicted.total;
  const progress = isPartial ? ` · predicting: ${predicted.done} of ${predicted.total} so far` : "";
  find("run-count").textContent = `${total ? `${listed.length} of ${total} examples${counted}` : "No examples"}${progress}`;
  find("run-more").hidden = listed.length >= total;
  markOpened();
}

function createRow(example, index) {
  const disabled = !canOpen(example);
  const button = createElement("button", { type: "button", disabled, onclick: () => openAt(index) }, ...describeInput(example));
  const outcome = createElement("td", { className: example.wrong ? "wrong" : "" }, ...markText(describePrediction(example)));
  const row = createElement("tr", {}, createElement("td", {}, button), createElement("td", {}, ...markText(example.gold ?? "–")), outcome);
  if ("value" in example) row.append(createElement("td", { textContent: formatNumber(example.value) }));
  return row;
}

const canOpen = ({ text, picture }) => text.length > 0 || picture; // the server may have no data for an image

function describeInput(example) {
  const name = createElement("span", { dir: "auto" }, ...markText(example.text.join(" · ") || `image ${example.example}`));
  if (!example.picture) return [name];
  return [createElement("img", { src: addressOfImage(findSource(), example.example), alt: "", loading: "lazy" }), name];
}

// An example whose prediction has not been computed has no label.
function describePrediction({ label, predicted, probability, wrong }) {
  const share = probability === null ? "" : ` ${formatPercent(probability)}`;
  return `${wrong ? "✗ " : ""}${predicted ?? (label || "…")}${predicted === null || predicted === label ? share : ""}`;
}

const openAt = guard(async (index) => {
  if (!listed[index] || !canOpen(listed[index])) return;
  opened = listed[index].example;
  markOpened();
  const source = findSource();
  await openExample(listed[index], source.isTask ? "" : find("run-method").value, source);
});

const findOpened = () => listed.findIndex(({ example }) => example === opened);

function markOpened() {
  const index = opened ? findOpened() : -1;
  [...find("run-examples").children].forEach((row, number) => row.classList.toggle("open", number === index));
  find("run-previous").disabled = index <= 0;
  find("run-next").disabled = index < 0 || index >= listed.length - 1;
}

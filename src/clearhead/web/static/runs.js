// Benchmark runs: a table of their examples with right labels, search and slices; each can be opened on the page.

import { addressOfRunImage, fetchExamples } from "./api.js";
import { createElement, fillSelect, fillSelectWithNames, find } from "./dom.js";
import { guard } from "./errors.js";
import { formatNumber, formatPercent } from "./format.js";
import { markText } from "./text_view.js";

const SEARCH_DELAY_MS = 250;
const CHOICES = ["run-method", "run-metric", "run-order", "run-slice", "run-gold", "run-predicted"];

let latestRequest = 0;
let searchTimer = 0;
let openExample = () => {};
let listed = []; // the examples in the table
let opened = -1; // the one that was opened last

export function startRuns(runs, onOpen) {
  if (!runs.length) return;
  openExample = onOpen;
  find("browse").hidden = false;
  fillSelectWithNames(find("run"), runs.map((run) => run.name), runs[0].name);
  const showFrom = guard(showExamples);
  const chooseRun = () => {
    const run = runs.find(({ name }) => name === find("run").value);
    fillRun(run);
    return run.error ? showNothing() : showFrom(0);
  };
  find("run").onchange = chooseRun;
  for (const id of CHOICES) find(id).onchange = () => showFrom(0);
  find("run-search").oninput = () => {
    clearTimeout(searchTimer);
    searchTimer = setTimeout(() => showFrom(0), SEARCH_DELAY_MS);
  };
  find("run-more").onclick = () => showFrom(listed.length);
  find("run-previous").onclick = () => openAt(opened - 1);
  find("run-next").onclick = () => openAt(opened + 1);
  chooseRun();
}

// A damaged run is named with the reason; the others stay as they are.
function fillRun({ name, methods, metrics, labels, error }) {
  fillSelectWithNames(find("run-method"), dropFurtherSeeds(methods), find("run-method").value);
  fillSelectWithNames(find("run-metric"), metrics, find("run-metric").value);
  for (const id of ["run-gold", "run-predicted"]) fillSelect(find(id), [["", "any"], ...labels.map((label) => [label, label])], "");
  find("run-error").hidden = !error;
  find("run-error").textContent = error;
  find("report").href = `/runs/${encodeURIComponent(name)}`;
}

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

async function showExamples(start) {
  const request = ++latestRequest;
  const isLatest = () => request === latestRequest;
  setBusy(true);
  if (!start) find("run-more").hidden = true; // it would add to the list that is being replaced
  try {
    const { examples, ...counts } = await fetchExamples(find("run").value, readParameters(start));
    if (!isLatest()) return;
    if (!start) opened = -1;
    listed = start ? [...listed, ...examples] : examples;
    showRows(counts);
  } catch (error) {
    if (isLatest() && !start) showNothing();
    throw error;
  } finally {
    if (isLatest()) setBusy(false);
  }
}

function readParameters(start) {
  const chosen = { gold: find("run-gold").value, predicted: find("run-predicted").value, search: find("run-search").value.trim() };
  const filled = Object.fromEntries(Object.entries(chosen).filter(([, value]) => value));
  return {
    method: find("run-method").value, metric: find("run-metric").value, lowest: find("run-order").value,
    slice: find("run-slice").value, start, ...filled,
  };
}

function setBusy(isBusy) {
  find("run-examples").ariaBusy = String(isBusy);
  find("run-more").disabled = isBusy;
}

function showRows({ total, wrong, right }) {
  find("run-examples").replaceChildren(...listed.map(createRow));
  const counted = wrong + right ? `, ${wrong} of ${wrong + right} wrong` : "";
  find("run-count").textContent = total ? `${listed.length} of ${total} examples${counted}` : "No examples";
  find("run-more").hidden = listed.length >= total;
  markOpened();
}

function createRow(example, index) {
  const disabled = !canOpen(example);
  const button = createElement("button", { type: "button", disabled, onclick: () => openAt(index) }, ...describeSource(example));
  const outcome = createElement("td", { className: example.wrong ? "wrong" : "" }, ...markText(describePrediction(example)));
  return createElement("tr", {},
    createElement("td", {}, button), createElement("td", {}, ...markText(example.gold ?? "–")), outcome,
    createElement("td", { textContent: formatNumber(example.value) }));
}

const canOpen = ({ text, picture }) => text.length > 0 || picture; // the server may have no data for an image

function describeSource(example) {
  const name = createElement("span", { dir: "auto" }, ...markText(example.text.join(" · ") || `image ${example.example}`));
  if (!example.picture) return [name];
  return [createElement("img", { src: addressOfRunImage(find("run").value, example.example), alt: "", loading: "lazy" }), name];
}

function describePrediction({ label, predicted, probability, wrong }) {
  const share = probability === null ? "" : ` ${formatPercent(probability)}`;
  return `${wrong ? "✗ " : ""}${predicted ?? label}${predicted === null || predicted === label ? share : ""}`;
}

const openAt = guard(async (index) => {
  if (!listed[index] || !canOpen(listed[index])) return;
  opened = index;
  markOpened();
  await openExample(listed[index], find("run-method").value, find("run").value);
});

function markOpened() {
  [...find("run-examples").children].forEach((row, index) => row.classList.toggle("open", index === opened));
  find("run-previous").disabled = opened <= 0;
  find("run-next").disabled = opened < 0 || opened >= listed.length - 1;
}

// Benchmark runs: their examples sorted by value, each of which can be opened on the page.

import { fetchExamples } from "./api.js";
import { createElement, fillSelectWithNames, find } from "./dom.js";
import { guard } from "./errors.js";
import { formatNumber, formatPercent } from "./format.js";

let latestRequest = 0;

export function startRuns(runs, openExample) {
  if (!runs.length) return;
  find("browse").hidden = false;
  fillSelectWithNames(find("run"), runs.map((run) => run.name), runs[0].name);
  const showFrom = guard((start) => showExamples(start, openExample));
  const chooseRun = () => {
    fillRun(runs.find((run) => run.name === find("run").value));
    return showFrom(0);
  };
  find("run").onchange = chooseRun;
  for (const id of ["run-method", "run-metric", "run-order"]) find(id).onchange = () => showFrom(0);
  find("run-more").onclick = () => showFrom(find("run-examples").childElementCount);
  chooseRun();
}

function fillRun(run) {
  fillSelectWithNames(find("run-method"), run.methods, find("run-method").value);
  fillSelectWithNames(find("run-metric"), run.metrics, find("run-metric").value);
  find("report").href = `/runs/${encodeURIComponent(run.name)}`;
}

async function showExamples(start, openExample) {
  const request = ++latestRequest;
  const isLatest = () => request === latestRequest;
  const run = find("run").value;
  const method = find("run-method").value;
  setBusy(true);
  if (!start) find("run-more").hidden = true; // it would add to the list that is being replaced
  try {
    const { total, examples } = await fetchExamples(run, readParameters(method, start));
    if (!isLatest()) return;
    const lines = examples.map((example) => createLine(example, guard(() => openExample(example, method, run))));
    showLines(start ? [...find("run-examples").children, ...lines] : lines, total);
  } catch (error) {
    if (isLatest() && !start) showLines([], 0);
    throw error;
  } finally {
    if (isLatest()) setBusy(false);
  }
}

const readParameters = (method, start) => ({ method, metric: find("run-metric").value, lowest: find("run-order").value, start });

function setBusy(isBusy) {
  find("run-examples").ariaBusy = String(isBusy);
  find("run-more").disabled = isBusy;
}

function showLines(lines, total) {
  find("run-examples").replaceChildren(...lines);
  find("run-count").textContent = total ? `${lines.length} of ${total} examples` : "";
  find("run-more").hidden = lines.length >= total;
}

function createLine(example, onclick) {
  const share = example.probability === null ? "" : ` ${formatPercent(example.probability)}`;
  const source = example.text.join(" · ") || `image ${example.example}`;
  const cells = [source, `${example.label}${share}`, formatNumber(example.value)];
  const disabled = !example.text.length && !example.picture; // the server has no data for its image
  const spans = cells.map((text) => createElement("span", { textContent: text }));
  return createElement("li", {}, createElement("button", { type: "button", disabled, onclick }, ...spans));
}

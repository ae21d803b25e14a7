// Benchmark runs: their examples sorted by value, each of which can be opened on the page.

import * as api from "./api.js";
import { find, make, options, percent, plain } from "./dom.js";

export function startBrowsing(runs, guarded, open) {
  if (!runs.length) return;
  find("browse").hidden = false;
  options(find("run"), runs.map((run) => [run.name, run.name]), runs[0].name);
  const show = guarded((start = 0) => showExamples(start, guarded, open));
  const chooseRun = () => {
    const run = runs.find((one) => one.name === find("run").value);
    options(find("run-method"), run.methods.map((name) => [name, name]), find("run-method").value);
    options(find("run-metric"), run.metrics.map((name) => [name, name]), find("run-metric").value);
    find("report").href = `/runs/${encodeURIComponent(run.name)}`;
    return show();
  };
  find("run").onchange = chooseRun;
  for (const id of ["run-method", "run-metric", "run-order"]) find(id).onchange = () => show();
  find("run-more").onclick = () => show(find("run-examples").childElementCount);
  chooseRun();
}

let latest = 0;

async function showExamples(start, guarded, open) {
  const number = ++latest;
  const [run, method] = [find("run").value, find("run-method").value];
  const asked = { method, metric: find("run-metric").value, lowest: find("run-order").value, start };
  wait(true);
  if (!start) find("run-more").hidden = true; // more of the list that is left
  try {
    const { total, examples } = await api.examples(run, asked);
    if (number !== latest) return;
    const lines = examples.map((one) => make("li", {}, line(one, guarded(() => open(one, method, run)))));
    list(start ? [...find("run-examples").children, ...lines] : lines, total);
  } catch (error) {
    if (number === latest && !start) list([], 0);
    throw error;
  } finally {
    if (number === latest) wait(false);
  }
}

function wait(on) {
  find("run-examples").ariaBusy = String(on);
  find("run-more").disabled = on;
}

function list(lines, total) {
  find("run-examples").replaceChildren(...lines);
  find("run-count").textContent = total ? `${lines.length} of ${total} examples` : "";
  find("run-more").hidden = lines.length >= total;
}

function line(one, onclick) {
  const share = one.probability === null ? "" : ` ${percent(one.probability)}`;
  const cells = [one.text.join(" · ") || `picture ${one.example}`, `${one.label}${share}`, plain(one.value)];
  return make("button", { type: "button", disabled: !one.text.length && !one.picture, onclick }, ...cells.map((text) => make("span", { textContent: text })));
}

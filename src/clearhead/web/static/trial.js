// The test: hide the top k %, or any words or patches, and watch the answer beside a random baseline.

import * as api from "./api.js";
import { at, chart } from "./chart.js";
import { bar, find, make } from "./dom.js";
import { showHidden } from "./see.js";
import { found, input, model, question, state, told } from "./state.js";

const WAIT = 40;
let running = new AbortController();
let asking = new AbortController();
let timer = 0;

export async function startTrial() {
  running.abort();
  running = new AbortController();
  found.curve = null;
  find("live").hidden = true;
  find("share").disabled = true;
  find("chart").setAttribute("aria-busy", "true");
  find("test-hint").textContent = hint();
  find("click-hint").textContent = `Or choose ${what()} above to hide them one by one.`;
  const curve = await api.curve({ ...question(), unit: state.level }, running.signal);
  found.curve = curve;
  find("share").disabled = false;
  find("share").max = curve.counts.length - 1;
  find("chart").setAttribute("aria-busy", "false");
  await measure();
}

function hint() {
  const contrast = found.answer.target.versus === null ? "" : " The numbers are the first class's probability less the second's.";
  return `Hide what is said to matter. If the explanation is right, the answer falls faster than when as much is hidden at random.${contrast}`;
}

export const what = () => (found.answer?.grid ? "patches" : state.level === "word" && found.answer?.words ? "words" : "tokens");

// The slider: the value is known already, so nothing is asked.
export function hideTop(step) {
  const curve = found.curve;
  if (!curve) return;
  const count = curve.counts[step];
  state.hidden = curve.order.slice(0, count).flat();
  showHidden();
  show(count, curve.values[step]);
}

export function toggle(places) {
  const hidden = new Set(state.hidden);
  const gone = places.every((place) => hidden.has(place));
  for (const place of places) gone ? hidden.delete(place) : hidden.add(place);
  state.hidden = [...hidden].sort((one, two) => one - two);
  showHidden();
  clearTimeout(timer);
  timer = setTimeout(() => measure().catch(report), WAIT);
}

let report = (error) => { throw error; };
export const onProblem = (handler) => (report = handler);

// What is hidden now: a step of the curve where it is one, otherwise asked of the model.
export async function measure() {
  const curve = found.curve;
  if (!curve) return;
  const hidden = new Set(state.hidden);
  const parts = curve.order.filter((part) => part.every((place) => hidden.has(place)));
  const step = curve.counts.indexOf(parts.length);
  const isTop = parts.flat().length === hidden.size && parts.every((part, place) => part === curve.order[place]);
  if (step >= 0 && isTop) {
    find("share").value = step;
    show(parts.length, curve.values[step]);
    return;
  }
  asking.abort();
  asking = new AbortController();
  const { values } = await api.hide({ ...input(), hidden: [state.hidden] }, asking.signal);
  show(parts.length, values[0]);
}

function show(count, value) {
  const curve = found.curve, total = curve.counts.at(-1);
  const random = at(curve, curve.random, count), before = curve.values[0];
  find("share-name").textContent = `${Math.round((count / total) * 100)} %`;
  find("share").setAttribute("aria-valuetext", `${count} of ${total} ${what()}`);
  find("reset").disabled = !state.hidden.length;
  const rows = [["Nothing hidden", before, ""], [`${count} of ${total} ${what()}`, value, "now"], ["As many at random", random, ""]];
  find("bars").replaceChildren(...rows.map(([name, share, css]) =>
    make("div", { className: css }, make("dt", { textContent: name }), make("dd", {}, bar(length(share))), make("dd", { className: "share", textContent: told(share) }))));
  find("live").hidden = !state.hidden.length;
  find("live").textContent = `${count} of ${total} ${what()} hidden: ${told(before)} → ${told(value)}`;
  find("finding").textContent = state.hidden.length ? finding(value - before, random - before) : "";
  find("chart").replaceChildren(chart(curve, state.hidden.length ? { count, value, random } : null, what(), told));
}

// A probability is its own length; any other number is placed between the lowest and highest of the curve.
function length(value) {
  if (model().problem !== "regression") return value;
  const every = [...found.curve.values, ...found.curve.low, ...found.curve.high];
  const low = Math.min(...every), high = Math.max(...every);
  return high > low ? (value - low) / (high - low) : 1;
}

function finding(moved, random) {
  const size = (change) => (model().problem === "regression" ? told(Math.abs(change)) : `${Math.abs(change * 100).toFixed(1)} points`);
  const points = (change) => `${change > 0 ? "up" : "down"} ${size(change)}`;
  const little = 0.02 * (model().problem === "regression" ? Math.max(...found.curve.high) - Math.min(...found.curve.low) : 1);
  const verdict = moved < random - little ? "These matter more than chance." : moved > random + little ? "These matter less than chance." : "No more than chance.";
  return `The answer goes ${points(moved)}; with as many hidden at random, ${points(random)}. ${verdict}`;
}

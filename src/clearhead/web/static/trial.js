// The test: hide the top k %, or any words or patches, and watch the answer beside a random baseline.

import * as api from "./api.js";
import { at, chart } from "./chart.js";
import { bar, find, make } from "./dom.js";
import { showHidden } from "./see.js";
import { answering, found, input, question, state, told } from "./state.js";

const WAIT = 40;
const NUMBERS = ["bars", "finding", "live"];
const PARTS = [...NUMBERS, "chart"];
let running = new AbortController();
let asking = new AbortController();
let timer = 0;

export async function startTrial() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  stopMeasuring();
  found.curve = null;
  find("live").hidden = true;
  find("share").disabled = find("reset").disabled = true;
  find("share").removeAttribute("aria-valuetext");
  busy(true);
  find("test-hint").textContent = hint();
  find("click-hint").textContent = `Or choose ${what()} above to hide them one by one.`;
  try {
    const curve = await api.curve({ ...question(), unit: state.level }, signal);
    if (signal.aborted) return;
    found.curve = curve;
  } catch (error) {
    if (!signal.aborted) showNoCurve();
    throw error;
  }
  find("share").disabled = false;
  find("share").max = found.curve.counts.length - 1;
  await measure();
}

// What stands there belongs to an earlier question until the new curve has come.
function busy(on, parts = PARTS) {
  for (const id of parts) find(id).ariaBusy = String(on);
}

function empty(parts) {
  for (const id of parts) find(id).replaceChildren();
  busy(false);
}

// Whatever is being measured is about what was hidden before.
function stopMeasuring() {
  clearTimeout(timer);
  asking.abort();
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
  stopMeasuring();
  const count = curve.counts[step];
  state.hidden = curve.order.slice(0, count).flat();
  showHidden();
  show(count, curve.values[step], step);
}

export function toggle(places) {
  const hidden = new Set(state.hidden);
  const gone = places.every((place) => hidden.has(place));
  for (const place of places) gone ? hidden.delete(place) : hidden.add(place);
  state.hidden = [...hidden].sort((one, two) => one - two);
  showHidden();
  stopMeasuring();
  if (found.curve) busy(true, NUMBERS);
  timer = setTimeout(() => measure().catch(report), WAIT);
}

let report = (error) => { throw error; };
export const onProblem = (handler) => (report = handler);

// What is hidden now: a step of the curve where it is one, otherwise asked of the model.
export async function measure() {
  const curve = found.curve;
  if (!curve) return;
  stopMeasuring();
  const hidden = new Set(state.hidden);
  const parts = curve.order.filter((part) => part.every((place) => hidden.has(place)));
  const step = curve.counts.indexOf(parts.length);
  const isTop = parts.flat().length === hidden.size && parts.every((part, place) => part === curve.order[place]);
  if (step >= 0 && isTop) {
    show(parts.length, curve.values[step], step);
    return;
  }
  asking = new AbortController();
  const { signal } = asking;
  try {
    const { values } = await api.hide({ ...input(), hidden: [state.hidden] }, signal);
    if (!signal.aborted) show(parts.length, values[0]);
  } catch (error) {
    if (!signal.aborted) showUnmeasured();
    throw error;
  }
}

function showNoCurve() {
  empty(PARTS);
  mark(0, 0);
}

function showUnmeasured() {
  empty(NUMBERS);
  mark(null);
  find("reset").disabled = false;
  find("chart").replaceChildren(chart(found.curve, null, what(), told));
}

// Where the slider stands, unless what is hidden was chosen one by one.
function mark(step, share = 0) {
  find("share").value = step ?? 0;
  find("share-name").textContent = step === null ? "…" : `${Math.round(share * 100)} %`;
}

// What hiding so many parts does; a step of the slider where they are the most relevant.
function show(count, value, step = null) {
  const curve = found.curve, total = curve.counts.at(-1);
  const random = at(curve, curve.random, count), before = curve.values[0];
  busy(false);
  mark(step, count / total);
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
  if (answering().problem !== "regression") return value;
  const every = [...found.curve.values, ...found.curve.low, ...found.curve.high];
  const low = Math.min(...every), high = Math.max(...every);
  return high > low ? (value - low) / (high - low) : 1;
}

function finding(moved, random) {
  const size = (change) => (answering().problem === "regression" ? told(Math.abs(change)) : `${Math.abs(change * 100).toFixed(1)} points`);
  const moves = (change) => (Number.parseFloat(size(change)) ? `goes ${change > 0 ? "up" : "down"} ${size(change)}` : "stays as it is");
  const little = 0.02 * (answering().problem === "regression" ? Math.max(...found.curve.high) - Math.min(...found.curve.low) : 1);
  const verdict = moved < random - little ? "These matter more than chance." : moved > random + little ? "These matter less than chance." : "No more than chance.";
  return `The answer ${moves(moved)}; with as many hidden at random, it ${moves(random)}. ${verdict}`;
}

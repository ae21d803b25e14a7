// Chart of the model's output as more and more is hidden: the most relevant first, and at random.

import { createSvg } from "./dom.js";

const WIDTH = 520;
const HEIGHT = 290;
const MARGIN = { right: 14, top: 34, bottom: 40, minLeft: 52 };
const CHARACTER_WIDTH = 7;
const TICKS = [0, 1, 2, 3, 4];
const MIN_RANGE = 1e-6;

// `marker` is what is hidden now ({ count, value, random }, or null); `format` turns a value into text.
export function drawChart(curve, marker, unit, format, isContrast = false) {
  const scale = createScale(curve, format, isContrast);
  const label = `The model's output as ${unit} are hidden. ${describeCurve(curve, format)}`;
  const chart = createSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  chart.append(...drawAxes(scale, unit), ...drawCurves(curve, scale), drawLegend(scale.left));
  if (marker) chart.append(...drawMarker(marker, scale));
  return chart;
}

function describeCurve({ values, random }, format) {
  return `From ${format(values[0])} to ${format(values.at(-1))}; half way ${format(middle(values))}, at random ${format(middle(random))}.`;
}

const middle = (values) => values[Math.floor(values.length / 2)];

// Positions of counts and values, and the ticks of the vertical axis.
function createScale(curve, format, isContrast) {
  const [low, high] = isContrast ? [-1, 1] : valueRange(curve);
  const ticks = TICKS.map((tick) => low + ((high - low) * tick) / 4);
  const labels = ticks.map((value) => format(value).replace(".0 %", " %"));
  const longest = Math.max(...labels.map((label) => label.length));
  const left = Math.max(MARGIN.minLeft, 10 + CHARACTER_WIDTH * longest);
  const total = curve.counts.at(-1);
  const x = (count) => left + (count / total) * (WIDTH - left - MARGIN.right);
  const y = (value) => HEIGHT - MARGIN.bottom - ((value - low) / (high - low)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  return { left, ticks, labels, total, x, y };
}

// Probabilities get the whole axis up to 1, unless all are so small that the curve would be flat.
function valueRange(curve) {
  const values = [...curve.values, ...curve.low, ...curve.high];
  const low = Math.min(0, ...values);
  const largest = Math.max(...values);
  if (largest > 0.2 && largest <= 1) return [low, 1];
  return [low, Math.max(largest, low + MIN_RANGE)];
}

function drawAxes({ left, ticks, labels, total, x, y }, unit) {
  const nodes = TICKS.flatMap((tick) => [
    createSvg("path", { class: "grid", d: `M${left} ${y(ticks[tick])}H${WIDTH - MARGIN.right}` }),
    drawLabel(left - 7, y(ticks[tick]) + 4, labels[tick], "end"),
    drawLabel(x((total * tick) / 4), HEIGHT - MARGIN.bottom + 17, `${tick * 25} %`, tick === 4 ? "end" : "middle"),
  ]);
  return [...nodes, drawLabel((left + WIDTH - MARGIN.right) / 2, HEIGHT - 6, `${unit} hidden`, "middle")];
}

function drawCurves(curve, { x, y }) {
  const points = (values) => values.map((value, step) => `${x(curve.counts[step]).toFixed(1)},${y(value).toFixed(1)}`);
  const band = [...points(curve.high), ...points(curve.low).reverse()];
  return [
    createSvg("polygon", { class: "band", points: band.join(" ") }),
    createSvg("polyline", { class: "random", points: points(curve.random).join(" ") }),
    createSvg("polyline", { class: "ranked", points: points(curve.values).join(" ") }),
  ];
}

function drawMarker({ count, value, random }, { x, y }) {
  return [
    createSvg("path", { class: "cursor", d: `M${x(count)} ${MARGIN.top}V${HEIGHT - MARGIN.bottom}` }),
    createSvg("circle", { class: "random-dot", cx: x(count), cy: y(random), r: 5 }),
    createSvg("circle", { class: "dot", cx: x(count), cy: y(value), r: 6.5 }),
  ];
}

function drawLegend(left) {
  return createSvg("g", {},
    createSvg("path", { class: "ranked", d: `M${left} 10h24` }), drawLabel(left + 30, 14, "most relevant first", "start"),
    createSvg("path", { class: "random", d: `M${left + 170} 10h24` }), drawLabel(left + 200, 14, "at random: mean and range", "start"));
}

function drawLabel(x, y, text, anchor) {
  const node = createSvg("text", { x, y, "text-anchor": anchor });
  node.textContent = text;
  return node;
}

// The value of a curve at any count, linear between the steps that were computed.
export function interpolate(counts, values, count) {
  const after = counts.findIndex((step) => step >= count);
  if (after <= 0) return values[0];
  const before = after - 1;
  const width = counts[after] - counts[before];
  return values[before] + ((values[after] - values[before]) * (count - counts[before])) / width;
}

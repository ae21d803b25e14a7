// Charts of the model's output as more and more is hidden: the most relevant first, and at random.

import { createSvg } from "./dom.js";

const WIDTH = 520;
const HEIGHT = 290;
const MARGIN = { right: 14, top: 34, bottom: 40, minLeft: 52 };
const CHARACTER_WIDTH = 7;
const TICKS = [0, 1, 2, 3, 4];
const MIN_RANGE = 1e-6;
const NAME = { gap: 8, swatch: 26, height: 16 };
const MIN_PLOT_RIGHT = 180;
const MIN_CHART = 260;
const LEGEND_WIDTH = 370; // of both entries beside each other
const CROWDED_PLOT = 260; // with every second label of the horizontal axis only

// `marker` is what is hidden now ({ count, value, random }, or null); `format` turns a value into text. As wide as there
// is space, so that its text keeps its size.
export function drawChart(curve, marker, unit, format, isContrast, space) {
  const width = Math.max(MIN_CHART, Math.min(WIDTH, space || WIDTH));
  const scale = createScale(curve, format, isContrast, width - MARGIN.right);
  const label = `The model's output as ${unit} are hidden. ${describeCurve(curve, format)}`;
  const chart = createSvg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });
  chart.append(...drawAxes(scale, unit), ...drawCurves(curve, scale), drawLegend(scale));
  if (marker) chart.append(...drawMarker(marker, scale));
  return chart;
}

function describeCurve({ values, random }, format) {
  return `From ${format(values[0])} to ${format(values.at(-1))}; half way ${format(middle(values))}, at random ${format(middle(random))}.`;
}

const middle = (values) => values[Math.floor(values.length / 2)];

// One line for each method, named at its end; `lines` have a name, counts and values. As wide as there is space.
export function drawLines(lines, unit, format, isContrast, space) {
  const all = { counts: [1], values: lines.flatMap(({ values }) => values), low: [], high: [] };
  const names = NAME.gap + NAME.swatch + CHARACTER_WIDTH * Math.max(...lines.map(({ name }) => name.length));
  const right = Math.max(MIN_PLOT_RIGHT, Math.min(WIDTH, space - names));
  const scale = createScale(all, format, isContrast, right);
  const width = right + names;
  const label = `The model's output as ${unit} are hidden. ${lines.map((line) => describeLine(line, format)).join(" ")}`;
  const chart = createSvg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": label });
  chart.append(...drawAxes(scale, unit), ...lines.map((line, index) => drawLine(line, index, scale)), ...drawNames(lines, scale));
  return chart;
}

const describeLine = (line, format) => `${line.name}: from ${format(line.values[0])} to ${format(line.values.at(-1))}, on average ${format(meanOf(line))}.`;

const shareOf = ({ counts }, step) => counts[step] / counts.at(-1);

function drawLine(line, index, { x, y }) {
  const points = line.values.map((value, step) => `${x(shareOf(line, step)).toFixed(1)},${y(value).toFixed(1)}`);
  return createSvg("polyline", { class: `line line-${index}`, points: points.join(" ") });
}

// At the heights where the lines end, as far apart as text needs.
function drawNames(lines, { y, right }) {
  const ends = lines.map(({ name, values }, index) => ({ name, index, height: y(values.at(-1)) }));
  ends.sort((first, second) => first.height - second.height);
  const heights = spreadHeights(ends.map(({ height }) => height));
  return ends.flatMap(({ name, index }, order) => drawName(name, index, right + NAME.gap, heights[order]));
}

function spreadHeights(ascending) {
  const heights = [];
  for (const height of ascending) heights.push(Math.max(height, (heights.at(-1) ?? -Infinity) + NAME.height));
  const excess = Math.max(0, heights.at(-1) - (HEIGHT - MARGIN.bottom));
  return heights.map((height) => height - excess);
}

function drawName(name, index, left, height) {
  const swatch = createSvg("path", { class: `line line-${index}`, d: `M${left} ${height}h${NAME.swatch - 6}` });
  return [swatch, drawLabel(left + NAME.swatch, height + 4, name, "start")];
}

// The mean output over the curve: the area below it, by trapezoids.
export function meanOf(line) {
  return line.values.slice(1).reduce((sum, value, step) => sum + ((value + line.values[step]) / 2) * (shareOf(line, step + 1) - shareOf(line, step)), 0);
}

// Positions of counts and values, and the ticks of the vertical axis.
function createScale(curve, format, isContrast, right) {
  const [low, high] = isContrast ? [-1, 1] : valueRange(curve);
  const ticks = TICKS.map((tick) => low + ((high - low) * tick) / 4);
  const labels = ticks.map((value) => format(value).replace(".0 %", " %"));
  const longest = Math.max(...labels.map((label) => label.length));
  const left = Math.max(MARGIN.minLeft, 10 + CHARACTER_WIDTH * longest);
  const total = curve.counts.at(-1);
  const x = (count) => left + (count / total) * (right - left);
  const y = (value) => HEIGHT - MARGIN.bottom - ((value - low) / (high - low)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  return { left, right, ticks, labels, total, x, y };
}

// Probabilities get the whole axis up to 1, unless all are so small that the curve would be flat.
function valueRange(curve) {
  const values = [...curve.values, ...curve.low, ...curve.high];
  const low = Math.min(0, ...values);
  const largest = Math.max(...values);
  if (largest > 0.2 && largest <= 1) return [low, 1];
  return [low, Math.max(largest, low + MIN_RANGE)];
}

function drawAxes({ left, right, ticks, labels, total, x, y }, unit) {
  const values = TICKS.flatMap((tick) => [
    createSvg("path", { class: "grid", d: `M${left} ${y(ticks[tick])}H${right}` }),
    drawLabel(left - 7, y(ticks[tick]) + 4, labels[tick], "end"),
  ]);
  const labelled = TICKS.filter((tick) => right - left > CROWDED_PLOT || tick % 2 === 0);
  const shares = labelled.map((tick) => drawLabel(x((total * tick) / 4), HEIGHT - MARGIN.bottom + 17, `${tick * 25} %`, tick === 4 ? "end" : "middle"));
  return [...values, ...shares, drawLabel((left + right) / 2, HEIGHT - 6, `${unit} hidden`, "middle")];
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

// Two entries beside each other, or one below the other.
function drawLegend({ left, right }) {
  const [x, y] = right - left < LEGEND_WIDTH ? [left, 24] : [left + 170, 10];
  return createSvg("g", {},
    createSvg("path", { class: "ranked", d: `M${left} 10h24` }), drawLabel(left + 30, 14, "most relevant first", "start"),
    createSvg("path", { class: "random", d: `M${x} ${y}h24` }), drawLabel(x + 30, y + 4, "at random: mean and range", "start"));
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

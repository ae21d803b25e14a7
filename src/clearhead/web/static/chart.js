// The model's answer as more and more is hidden: by the explanation, and at random.

import { draw } from "./dom.js";

const WIDTH = 520, HEIGHT = 290, RIGHT = 14, TOP = 34, BOTTOM = 40, NARROW = 52, LETTER = 7;

// `told` writes a value as text.
export function chart(curve, place, what, told) {
  const every = [...curve.values, ...curve.low, ...curve.high];
  const low = Math.min(0, ...every), top = Math.max(...every);
  const high = top > 0.2 && top <= 1 ? 1 : Math.max(top, low + 1e-6);
  const total = curve.counts.at(-1);
  const marks = [0, 1, 2, 3, 4].map((part) => low + ((high - low) * part) / 4);
  const names = marks.map((value) => told(value).replace(".0 %", " %"));
  const LEFT = Math.max(NARROW, 10 + LETTER * Math.max(...names.map((name) => name.length)));
  const x = (count) => LEFT + (count / total) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const points = (values) => values.map((value, at) => `${x(curve.counts[at]).toFixed(1)},${y(value).toFixed(1)}`);
  const said = `From ${told(curve.values[0])} to ${told(curve.values.at(-1))}; half way ${told(middle(curve.values))}, at random ${told(middle(curve.random))}.`;
  const picture = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `The answer as ${what} are hidden. ${said}` });
  for (let part = 0; part <= 4; part++) {
    const value = marks[part];
    picture.append(draw("path", { class: "grid", d: `M${LEFT} ${y(value)}H${WIDTH - RIGHT}` }));
    picture.append(label(LEFT - 7, y(value) + 4, names[part], "end"));
    picture.append(label(x((total * part) / 4), HEIGHT - BOTTOM + 17, `${part * 25} %`, part === 4 ? "end" : "middle"));
  }
  picture.append(label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, `${what} hidden`, "middle"));
  picture.append(draw("polygon", { class: "band", points: [...points(curve.high), ...points(curve.low).reverse()].join(" ") }));
  picture.append(draw("polyline", { class: "random", points: points(curve.random).join(" ") }));
  picture.append(draw("polyline", { class: "own", points: points(curve.values).join(" ") }));
  picture.append(legend(LEFT));
  if (place) {
    picture.append(draw("path", { class: "cursor", d: `M${x(place.count)} ${TOP}V${HEIGHT - BOTTOM}` }));
    picture.append(draw("circle", { class: "other", cx: x(place.count), cy: y(place.random), r: 5 }));
    picture.append(draw("circle", { class: "dot", cx: x(place.count), cy: y(place.value), r: 6.5 }));
  }
  return picture;
}

const middle = (values) => values[Math.floor(values.length / 2)];

function label(x, y, text, anchor) {
  const node = draw("text", { x, y, "text-anchor": anchor });
  node.textContent = text;
  return node;
}

function legend(left) {
  return draw("g", {},
    draw("path", { class: "own", d: `M${left} 10h24` }), label(left + 30, 14, "most relevant first", "start"),
    draw("path", { class: "random", d: `M${left + 170} 10h24` }), label(left + 200, 14, "at random: mean and range", "start"));
}

// The value of a curve at any count, between the steps that were computed.
export function at(curve, values, count) {
  const after = curve.counts.findIndex((one) => one >= count);
  if (after <= 0) return values[0];
  const before = after - 1, width = curve.counts[after] - curve.counts[before];
  return values[before] + ((values[after] - values[before]) * (count - curve.counts[before])) / width;
}

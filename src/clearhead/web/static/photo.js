// A photo under its heat map, patch by patch, each of which can be hidden.

import { make, rove, signed } from "./dom.js";

const WIDEST = 640;
const WARM = [[255, 205, 70], [226, 84, 0]];
const COLD = [[150, 205, 255], [16, 84, 200]];
const STRONG = 0.98;

export function loaded(url) {
  return new Promise((done, fail) => {
    const image = new Image();
    image.onload = () => done(image);
    image.onerror = () => fail(new Error("This picture cannot be shown by the browser."));
    image.src = url;
  });
}

// What the full colour stands for: only two patches in a hundred are stronger.
export function fullOf(values) {
  const sizes = values.map(Math.abs).sort((one, two) => one - two);
  return sizes[Math.floor((sizes.length - 1) * STRONG)] || sizes.at(-1) || 0;
}

export function figure(answer, image, choose) {
  const scale = Math.min(1, WIDEST / Math.max(image.naturalWidth, image.naturalHeight)) || 1;
  const grow = Math.max(scale, Math.min(3, 420 / Math.max(image.naturalWidth, image.naturalHeight)));
  const zoom = scale < 1 ? scale : grow;
  const canvas = make("canvas", { width: Math.round(image.naturalWidth * zoom), height: Math.round(image.naturalHeight * zoom) });
  canvas.setAttribute("role", "img");
  const frame = make("div", { className: "photo" }, canvas);
  const view = { frame, canvas, image, items: [], answer };
  if (choose) addPatches(view, choose);
  return view;
}

function addPatches(view, choose) {
  const [rows, columns] = view.answer.grid;
  const grid = make("div", { className: "patches", role: "grid", ariaLabel: "Patches; arrow keys move, Space hides" });
  for (let row = 0; row < rows; row++) {
    const line = make("div", { role: "row" });
    for (let column = 0; column < columns; column++) {
      const label = `Row ${row + 1}, column ${column + 1}`;
      const cell = make("button", { type: "button", role: "gridcell", ariaLabel: label, ariaSelected: "false" });
      view.items.push(cell);
      line.append(cell);
    }
    grid.append(line);
  }
  const [left, top, right, bottom] = view.answer.box;
  const [width, height] = view.answer.size;
  const sides = { left: left / width, top: top / height, width: (right - left) / width, height: (bottom - top) / height };
  for (const [side, share] of Object.entries(sides)) grid.style[side] = `${share * 100}%`;
  grid.style.gridTemplate = `repeat(${rows}, 1fr) / repeat(${columns}, 1fr)`;
  rove(grid, view.items, columns, choose);
  view.frame.append(grid);
}

// A map of pixels, where the method has one: the values of docs/page.md, unpacked once.
export function pixelsOf(answer) {
  if (!answer.pixels || answer.pixels.values) return answer.pixels;
  const levels = Int8Array.from(atob(answer.pixels.levels), (letter) => letter.charCodeAt(0));
  const values = Array.from(levels, (level) => level * answer.pixels.unit);
  return Object.assign(answer.pixels, { values, full: fullOf(values) });
}

// What is drawn: the pixels where there are some and patches were not asked for, else the patches.
function map(answer, values, full, smooth) {
  const pixels = smooth ? pixelsOf(answer) : null;
  return pixels ? veil(pixels.values, pixels.full, ...pixels.size) : veil(values, full, ...answer.grid);
}

export function paint(view, values, full, { smooth, opacity = 75, hidden = new Set(), description = "" }) {
  const { canvas, image, answer } = view;
  const [rows, columns] = answer.grid;
  const [left, top, right, bottom] = answer.box;
  const across = canvas.width / answer.size[0], down = canvas.height / answer.size[1];
  const box = [left * across, top * down, (right - left) * across, (bottom - top) * down];
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.filter = opacity ? "grayscale(.9)" : "none";
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  pen.filter = "none";
  pen.save();
  pen.beginPath();
  pen.rect(...box);
  pen.clip();
  pen.globalAlpha = opacity / 100;
  pen.imageSmoothingEnabled = smooth;
  pen.imageSmoothingQuality = "high";
  pen.drawImage(map(answer, values, full, smooth), ...box);
  pen.restore();
  pen.fillStyle = "#000";
  for (const patch of hidden) {
    const row = Math.floor(patch / columns), column = patch % columns;
    pen.fillRect(box[0] + (column * box[2]) / columns, box[1] + (row * box[3]) / rows, box[2] / columns + 0.5, box[3] / rows + 0.5);
  }
  canvas.ariaLabel = description;
}

function veil(values, full, rows, columns) {
  const small = make("canvas", { width: columns, height: rows });
  const pen = small.getContext("2d");
  const pixels = pen.createImageData(columns, rows);
  values.forEach((value, place) => {
    const size = Math.min(1, Math.abs(value) / (full || 1));
    const [pale, strong] = value >= 0 ? WARM : COLD;
    const color = pale.map((one, channel) => one + (strong[channel] - one) * size);
    pixels.data.set([...color, 255 * size ** 0.8], place * 4);
  });
  pen.putImageData(pixels, 0, 0);
  return small;
}

export function described(answer, values) {
  const [rows, columns] = answer.grid;
  const best = values.reduce((top, value, place) => (Math.abs(value) > Math.abs(values[top]) ? place : top), 0);
  const row = Math.floor(best / columns) + 1, column = (best % columns) + 1;
  return `Photo with a heat map for ${answer.label}. The strongest patch, ${signed(values[best])}, is in row ${row} of ${rows}, column ${column} of ${columns}.`;
}

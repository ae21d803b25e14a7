// A photo under its heat map, with a grid of patches that can be hidden.

import { addRovingFocus, createElement } from "./dom.js";
import { formatRelevance } from "./scale.js";

const MAX_SIDE = 640;
const MIN_SIDE = 420;
const MAX_ZOOM = 3;
const WARM = [[255, 205, 70], [226, 84, 0]];
const COLD = [[150, 205, 255], [16, 84, 200]];
const FULL_COLOR_QUANTILE = 0.98;
const ALPHA_EXPONENT = 0.8;
const PATCH_OVERLAP = 0.5; // closes the seams that rounding leaves between neighbouring patches

export function loadImage(url) {
  return new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => resolve(image);
    image.onerror = () => reject(new Error("The browser cannot show this image."));
    image.src = url;
  });
}

// The value that gets the full colour. A quantile, because a single outlier would leave all other patches pale.
export function findFull(values) {
  const sizes = values.map(Math.abs).sort((first, second) => first - second);
  return sizes[Math.floor((sizes.length - 1) * FULL_COLOR_QUANTILE)] || sizes.at(-1) || 0;
}

// With `onChoose` the patches are buttons.
export function createImageView(explanation, image, onChoose) {
  const zoom = chooseZoom(image);
  const canvas = createElement("canvas", { width: Math.round(image.naturalWidth * zoom), height: Math.round(image.naturalHeight * zoom) });
  canvas.setAttribute("role", "img");
  const frame = createElement("div", { className: "photo" }, canvas);
  const view = { frame, canvas, image, items: [], explanation };
  if (onChoose) addPatchButtons(view, onChoose);
  return view;
}

function chooseZoom(image) {
  const side = Math.max(image.naturalWidth, image.naturalHeight);
  if (side > MAX_SIDE) return MAX_SIDE / side;
  return Math.max(1, Math.min(MAX_ZOOM, MIN_SIDE / side));
}

function addPatchButtons(view, onChoose) {
  const [rows, columns] = view.explanation.grid;
  const grid = createElement("div", { className: "patches", role: "grid", ariaLabel: "Patches; arrow keys move, Space hides" });
  for (let row = 0; row < rows; row++) grid.append(createPatchRow(view, row, columns));
  placeGrid(grid, view.explanation);
  addRovingFocus(grid, view.items, columns, onChoose);
  view.frame.append(grid);
}

function createPatchRow(view, row, columns) {
  const line = createElement("div", { role: "row" });
  for (let column = 0; column < columns; column++) {
    const ariaLabel = `Row ${row + 1}, column ${column + 1}`;
    const cell = createElement("button", { type: "button", role: "gridcell", ariaLabel, ariaSelected: "false" });
    view.items.push(cell);
    line.append(cell);
  }
  return line;
}

// The box is the part of the photo that the model sees; in percent, because the page scales the photo.
function placeGrid(grid, { grid: [rows, columns], box: [left, top, right, bottom], size: [width, height] }) {
  grid.style.left = `${(left / width) * 100}%`;
  grid.style.top = `${(top / height) * 100}%`;
  grid.style.width = `${((right - left) / width) * 100}%`;
  grid.style.height = `${((bottom - top) / height) * 100}%`;
  grid.style.gridTemplate = `repeat(${rows}, 1fr) / repeat(${columns}, 1fr)`;
}

// Relevance per pixel (docs/page.md), if the method has it; decoded once and kept with the explanation.
export function decodePixels(explanation) {
  const { pixels } = explanation;
  if (!pixels || pixels.values) return pixels;
  const levels = Int8Array.from(atob(pixels.levels), (character) => character.charCodeAt(0));
  const values = Array.from(levels, (level) => level * pixels.unit);
  return Object.assign(pixels, { values });
}

// Values and scale of what is drawn: pixels if there are some and the view is smooth, otherwise patches.
export function chooseHeatmap(explanation, values, scale, smooth) {
  const pixels = smooth ? decodePixels(explanation) : null;
  return pixels ?? { values, scale, size: explanation.grid };
}

export function paintImage(view, values, scale, { smooth, opacity = 75, hidden = new Set(), description = "" }) {
  const context = view.canvas.getContext("2d");
  const box = scaleBox(view);
  paintPhoto(context, view, opacity);
  paintHeatmap(context, box, chooseHeatmap(view.explanation, values, scale, smooth), smooth, opacity);
  paintHiddenPatches(context, box, view.explanation.grid, hidden);
  view.canvas.ariaLabel = description;
}

// The box in pixels of the canvas: left, top, width, height.
function scaleBox({ canvas, explanation: { box: [left, top, right, bottom], size: [width, height] } }) {
  const across = canvas.width / width;
  const down = canvas.height / height;
  return [left * across, top * down, (right - left) * across, (bottom - top) * down];
}

// Grey under a heat map, whose colours would otherwise mix with those of the photo.
function paintPhoto(context, { canvas, image }, opacity) {
  context.fillStyle = "#fff"; // as the model sees transparent photos
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.filter = opacity ? "grayscale(.9)" : "none";
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  context.filter = "none";
}

function paintHeatmap(context, box, heatmap, smooth, opacity) {
  context.save();
  context.beginPath();
  context.rect(...box);
  context.clip(); // smoothing would colour pixels outside the box
  context.globalAlpha = opacity / 100;
  context.imageSmoothingEnabled = smooth;
  context.imageSmoothingQuality = "high";
  context.drawImage(createHeatmap(heatmap), ...box);
  context.restore();
}

function paintHiddenPatches(context, [left, top, width, height], [rows, columns], hidden) {
  context.fillStyle = "#000";
  for (const patch of hidden) {
    const row = Math.floor(patch / columns);
    const column = patch % columns;
    const x = left + (column * width) / columns;
    const y = top + (row * height) / rows;
    context.fillRect(x, y, width / columns + PATCH_OVERLAP, height / rows + PATCH_OVERLAP);
  }
}

// A canvas with one pixel per value; the browser scales it up.
function createHeatmap({ values, scale, size: [rows, columns] }) {
  const canvas = createElement("canvas", { width: columns, height: rows });
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(columns, rows);
  values.forEach((value, index) => pixels.data.set(chooseColor(value, scale.full), index * 4));
  context.putImageData(pixels, 0, 0);
  return canvas;
}

function chooseColor(value, fullScale) {
  const strength = Math.min(1, Math.abs(value) / (fullScale || 1));
  const [pale, full] = value >= 0 ? WARM : COLD;
  const rgb = pale.map((channel, index) => channel + (full[index] - channel) * strength);
  return [...rgb, 255 * strength ** ALPHA_EXPONENT];
}

// The alternative text of a heat map.
export function describeHeatmap(explanation, values, scale) {
  const [rows, columns] = explanation.grid;
  const strongest = values.reduce((best, value, index) => (Math.abs(value) > Math.abs(values[best]) ? index : best), 0);
  const row = Math.floor(strongest / columns) + 1;
  const column = (strongest % columns) + 1;
  return `Photo with a heat map for ${explanation.label}. The strongest patch, ${formatRelevance(scale, values[strongest])}, is in row ${row} of ${rows}, column ${column} of ${columns}.`;
}

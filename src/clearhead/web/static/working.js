// A bar that says how long work has taken and how far it is, with a button to stop it.

import { fetchProgress } from "./api.js";
import { find } from "./dom.js";

let stopTracking = () => {};

// Shown after the first second: most answers are there before.
export function startWorking({ kind, answer }, ticket) {
  const task = kind === "prompt" && !answer.trim() ? "Writing and explaining" : "Explaining";
  stopWorking();
  stopTracking = trackWork(task, ticket, (text) => {
    find("working").hidden = false;
    find("working-text").textContent = text;
  });
}

export function stopWorking() {
  stopTracking();
  find("working").hidden = true;
}

// Calls `show` every second with what is being done, and asks the server how far it is; returns how to end this.
export function trackWork(task, ticket, show) {
  const start = Date.now();
  let isOver = false;
  const timer = setInterval(async () => {
    const seconds = (Date.now() - start) / 1000;
    const progress = await fetchProgress(ticket).catch(() => null);
    if (!isOver) show(`${task} … ${Math.round(seconds)} s${describeProgress(progress, seconds)}`);
  }, 1000);
  return () => {
    isOver = true;
    clearInterval(timer);
  };
}

function describeProgress(progress, seconds) {
  if (!progress || progress.state === "unknown") return "";
  if (progress.state === "waiting") return ` · ${progress.ahead} before this one`;
  const { done, total, label } = progress;
  if (!done || !total) return "";
  const left = (seconds / done) * (total - done);
  return ` · ${done} of ${total} ${label}, about ${Math.max(1, Math.round(left))} s left`;
}

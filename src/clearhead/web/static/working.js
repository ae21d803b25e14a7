// The line under the form that says how long a question has been worked on, with a button to stop it.

import { find } from "./dom.js";

let timer = 0;

// Shown after the first second: most answers are there before.
export function startWorking({ kind, answer }) {
  const start = Date.now();
  const task = kind === "prompt" && !answer.trim() ? "Writing and explaining" : "Explaining";
  stopWorking();
  timer = setInterval(() => {
    find("working").hidden = false;
    find("working-text").textContent = `${task} … ${Math.round((Date.now() - start) / 1000)} s`;
  }, 1000);
}

export function stopWorking() {
  clearInterval(timer);
  find("working").hidden = true;
}

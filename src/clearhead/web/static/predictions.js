// Predictions for the examples of a task, computed a few at a time as long as somebody looks at them.

import { fetchPredictions } from "./api.js";

const IDLE_CHECK_MS = 300;
const RETRY_MS = 3000;
const MAX_FAILURES = 3;

// Calls `onProgress` with { done, total } after every part, until all are there or the signal is aborted.
export async function predictAll(body, signal, onProgress) {
  let failures = 0;
  while (!signal.aborted) {
    await waitUntilIdle(signal);
    try {
      const progress = await fetchPredictions(body, signal);
      failures = 0;
      await onProgress(progress);
      if (progress.done >= progress.total) return;
    } catch (error) {
      if (signal.aborted) return;
      failures += 1;
      if (failures >= MAX_FAILURES) throw error;
      await pause(RETRY_MS); // the server may be busy with other questions
    }
  }
}

// Questions go first, and nothing is computed for a page that nobody sees.
async function waitUntilIdle(signal) {
  while (!signal.aborted && (document.hidden || document.body.classList.contains("busy"))) await pause(IDLE_CHECK_MS);
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

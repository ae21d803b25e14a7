// Choosing a word of an answer, and the explanations of all words for the grid.

import { addRow, startGrid } from "./answer_grid.js";
import { fetchExplanation } from "./api.js";
import { showChecked } from "./check_view.js";
import { find } from "./dom.js";
import { showRelevance } from "./explanation_view.js";
import { updateAddress } from "./link.js";
import { startTest } from "./perturbation_test.js";
import { explainFields, isAnswer, session, state } from "./state.js";

const MAX_ROWS = 60;
// One backward pass for each word; the others are slower, and wait until the grid is opened.
const QUICK = [
  "attn-lrp", "cp-lrp", "balanced-cat", "cat", "att-cat", "gradient", "gradient-x-input", "raw-attention", "rollout",
  "grads", "att-grads", "gae", "attention-gradcam", "layer-gradcam",
];

let request = new AbortController();
let openGrid = () => {};

// What explains a word of a question's answer: the explanation itself for the whole answer.
export function fetchChosen(question, explanation, word, signal) {
  return word && explanation.answer ? fetchExplanation(explainFields({ word }, question), signal) : explanation;
}

export async function chooseWord(word) {
  request.abort();
  request = new AbortController();
  const { signal } = request;
  const { question, explanation } = session;
  find("relevance").ariaBusy = "true";
  try {
    const chosen = await fetchChosen(question, explanation, word, signal);
    if (signal.aborted || question !== session.question) return;
    session.chosen = chosen;
    state.word = word;
  } finally {
    if (request.signal === signal) {
      find("relevance").ariaBusy = "false";
      showRelevance(); // after an error the former choice is checked again
    }
  }
  updateAddress();
  await Promise.all([showChecked(), startTest()]);
}

export async function fillGrid(signal) {
  find("grid").hidden = !isAnswer() || session.explanation.answer.words.length < 2;
  if (find("grid").hidden) return;
  find("grid-rows").replaceChildren();
  showProgress(0);
  const isWaiting = !QUICK.includes(session.question.method) && !find("grid").open;
  // Also where nothing waits, so that opening the grid does not go on with an earlier question.
  const opened = new Promise((resolve) => (openGrid = resolve));
  if (isWaiting) await opened;
  if (!signal.aborted) await fetchRows(signal);
}

export const wireGrid = () => (find("grid").ontoggle = () => openGrid());

async function fetchRows(signal) {
  const { explanation } = session;
  const words = explanation.answer.words.slice(0, MAX_ROWS);
  const grid = startGrid(explanation);
  for (const [index, word] of words.entries()) {
    if (signal.aborted) return;
    addRow(grid, word, await fetchExplanation(explainFields({ word: [word.start, word.end] }), signal));
    showProgress(index + 1);
  }
  addRow(grid, { text: explanation.answer.start }, explanation);
}

function showProgress(count) {
  const total = session.explanation.answer.words.length;
  const shown = Math.min(total, MAX_ROWS);
  const rest = total > shown ? ` The last ${total - shown} words are not shown.` : "";
  find("grid-progress").textContent = count < shown ? `${count} of ${shown} words` : `Every row has its own scale.${rest}`;
}

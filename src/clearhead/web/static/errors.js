// Error messages at the top of the page.

import { createElement, find } from "./dom.js";

export function showError(message) {
  const dismiss = createElement("button", { type: "button", ariaLabel: "Dismiss", textContent: "×" });
  const line = createElement("p", { className: "problem" }, createElement("span", { textContent: message }), dismiss);
  dismiss.onclick = () => line.remove();
  find("problems").replaceChildren(line);
}

export const clearErrors = () => find("problems").replaceChildren();

export function reportError(error) {
  // The page aborts requests itself once their answers are not needed any more.
  if (error?.name === "AbortError") return;
  showError(error?.message ?? String(error));
}

// Wraps a function so that its errors, also asynchronous ones, are shown instead of thrown.
export const guard = (action) => async (...values) => {
  try {
    await action(...values);
  } catch (error) {
    reportError(error);
  }
};

// The scale of an explanation: what its numbers mean, and which of them gets the full colour. The server computes it.

const UNIT_NAMES = { probability: " points", logit: " logits", "log-prob": " nats", "log-odds": " log-odds" };

// The scale of numbers that only the page shows, such as those of one block: shares of their sum.
export function scaleShares(values, units) {
  const sizes = values.map(Math.abs);
  const total = sizes.reduce((sum, size) => sum + size, 0);
  const signed = values.some((value) => value < 0);
  return { measure: "share", full: Math.max(0, ...sizes), total, signed, caption: `Shares of all relevance on ${units}.` };
}

// A relevance as a share of all relevance, or as an effect in its own unit.
export function formatRelevance(scale, value) {
  const isShare = scale.measure === "share";
  const number = isShare ? (scale.total > 0 ? value / scale.total : 0) : (value ?? 0);
  const sign = number < 0 ? "−" : number > 0 && (scale.signed || !isShare) ? "+" : "";
  const size = Math.abs(number);
  if (isShare) return `${sign}${roundPercent(size)} %`;
  const digits = scale.measure === "probability" ? roundPercent(size) : roundValue(size);
  return `${sign}${digits}${UNIT_NAMES[scale.measure] ?? ""}`;
}

function roundPercent(share) {
  const percent = share * 100;
  if (percent >= 9.95) return percent.toFixed(0);
  if (percent >= 0.095) return String(Number(percent.toFixed(1)));
  return percent < 0.0005 ? "0" : String(Number(percent.toPrecision(1)));
}

const roundValue = (size) => (size >= 1000 ? size.toFixed(0) : String(Number(size.toPrecision(3))));

// On scales of the same method and model the same share has the same colour; effects have fixed colours anyway.
export function joinScales(scale, scales) {
  if (scale.measure !== "share" || !(scale.total > 0)) return scale;
  const shares = scales.filter(({ measure, total }) => measure === "share" && total > 0).map(({ full, total }) => full / total);
  return { ...scale, full: Math.max(...shares) * scale.total };
}

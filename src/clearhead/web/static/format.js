// Numbers as text.

// Below one percent two significant digits stay, so that small probabilities can be told apart.
export function formatPercent(share) {
  if (share !== 0 && Math.abs(share) < 0.01) return `${Number((share * 100).toPrecision(2))} %`;
  return `${(share * 100).toFixed(1)} %`;
}

export function formatNumber(value) {
  if (value && Math.abs(value) < 0.001) return value.toExponential(1);
  return String(Number(value.toPrecision(3)));
}

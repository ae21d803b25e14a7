// The state of the page in its address, behind the #, which browsers keep to themselves.

const LARGEST = 400_000;

export function written(state) {
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return `#${btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
}

export function read(hash) {
  if (hash.length < 2) return null;
  try {
    const text = atob(hash.slice(1).replaceAll("-", "+").replaceAll("_", "/"));
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
  } catch {
    throw new Error("This link is damaged.");
  }
}

// A photo travels in the link only where it is small.
export const portable = (state) => ((state.image?.length ?? 0) < LARGEST ? state : { ...state, image: null, imageName: "" });

// Elements are made of text only: nothing here, or anywhere on the page, parses markup.

export const find = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

export function draw(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

export function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, name]) => make("option", { value, textContent: name })));
  if (entries.some(([value]) => value === chosen)) select.value = chosen;
}

// Shares below one per cent keep two digits, so that small ones can be told apart.
export const percent = (share) => (share !== 0 && Math.abs(share) < 0.01 ? `${Number((share * 100).toPrecision(2))} %` : `${(share * 100).toFixed(1)} %`);

export const plain = (value) => (value && Math.abs(value) < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(3))));

export const signed = (value) => (value > 0 ? `+${plain(value)}` : plain(value ?? 0));

export function bar(share) {
  const track = make("span", { className: "track" }, make("i"));
  track.firstChild.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return track;
}

export function complain(message) {
  const line = make("p", { className: "problem" }, make("span", { textContent: message }));
  line.append(make("button", { type: "button", ariaLabel: "Dismiss", textContent: "×", onclick: () => line.remove() }));
  find("problems").replaceChildren(line);
}

// Arrow keys move among the items of a group, of which one at a time can be reached by Tab; Space and Enter choose.
export function rove(group, items, columns, choose) {
  if (!items.length) return;
  items.forEach((item, place) => (item.tabIndex = place ? -1 : 0));
  const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
  group.addEventListener("keydown", (event) => {
    const at = items.indexOf(event.target);
    if (at < 0) return;
    if (event.key === " " || event.key === "Enter") choose(at);
    else if (event.key === "Home" || event.key === "End") go(event.key === "Home" ? 0 : items.length - 1);
    else if (event.key in moves) go(at + moves[event.key]);
    else return;
    event.preventDefault();
  });
  group.addEventListener("click", (event) => {
    const at = items.indexOf(event.target.closest("[role]"));
    if (at >= 0) choose(at);
  });
  function go(to) {
    if (!(to in items)) return;
    items.forEach((item) => (item.tabIndex = -1));
    items[to].tabIndex = 0;
    items[to].focus();
  }
}

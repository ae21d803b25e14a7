// Helpers for elements. Content is always set as text: no code of this page parses markup.

export const find = (id) => document.getElementById(id);

export function createElement(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    // Some browsers have no property for an attribute such as `role`.
    if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

export function createSvg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// Entries are pairs of value and label; the selected value is kept if it is one of them.
export function fillSelect(select, entries, selected) {
  select.replaceChildren(...entries.map(([value, label]) => createElement("option", { value, textContent: label })));
  if (entries.some(([value]) => value === selected)) select.value = selected;
}

// The same with groups: a list of pairs of group and entries.
export function fillGroupedSelect(select, groups, selected) {
  const createOption = ([value, label]) => createElement("option", { value, textContent: label });
  select.replaceChildren(...groups.map(([label, entries]) => createElement("optgroup", { label }, ...entries.map(createOption))));
  if (groups.some(([, entries]) => entries.some(([value]) => value === selected))) select.value = selected;
}

export const fillSelectWithNames = (select, names, selected) => fillSelect(select, names.map((name) => [name, name]), selected);

export function createBar(share) {
  const track = createElement("span", { className: "track" }, createElement("i"));
  track.firstChild.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return track;
}

// A line of a list of bars: name, bar and number.
export function createBarRow(name, share, number, className = "") {
  const text = createElement("dd", { className: "share", textContent: number });
  const bar = createElement("dd", {}, createBar(share));
  return createElement("div", { className }, createElement("dt", { textContent: name }), bar, text);
}

// Makes the items of a group one stop of the Tab key (roving tabindex): arrow keys move, Space and Enter choose.
export function addRovingFocus(group, items, columns, onChoose) {
  if (!items.length) return;
  items.forEach((item, index) => (item.tabIndex = index ? -1 : 0));
  group.addEventListener("keydown", (event) => {
    const index = items.indexOf(event.target);
    if (index >= 0 && handleKey(event.key, items, index, columns, onChoose)) event.preventDefault();
  });
  group.addEventListener("click", (event) => {
    const index = items.indexOf(event.target.closest("[role]"));
    if (index >= 0) onChoose(index);
  });
}

// Returns whether the key means anything here.
function handleKey(key, items, index, columns, onChoose) {
  const targets = {
    ArrowRight: index + 1, ArrowLeft: index - 1, ArrowDown: index + columns, ArrowUp: index - columns,
    Home: 0, End: items.length - 1,
  };
  if (key === " " || key === "Enter") onChoose(index);
  else if (key in targets) focusItem(items, targets[key]);
  else return false;
  return true;
}

function focusItem(items, index) {
  if (!(index in items)) return;
  items.forEach((item) => (item.tabIndex = -1));
  items[index].tabIndex = 0;
  items[index].focus();
}

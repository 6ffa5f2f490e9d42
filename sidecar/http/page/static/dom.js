// Elements made of names, attributes and text. Text only: nothing here, or anywhere on the page, parses markup.

const SVG = "http://www.w3.org/2000/svg";

/** `element("td", { class: "number" }, "17")`; children are elements or text, and null is left out. */
export const element = (name, attributes = {}, ...children) =>
  filled(document.createElement(name), attributes, children);

/** The same for a part of a drawing. */
export const drawn = (name, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, name), attributes, children);

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

/**
 * Make `old` like `fresh`, keeping what is the same already: what has the focus, is selected or scrolled stays so while
 * numbers change under it.
 */
export function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || old.id !== fresh.id) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const before = [...old.childNodes];
  const after = [...fresh.childNodes];
  after.forEach((child, place) => (place < before.length ? morph(before[place], child) : old.append(child)));
  before.slice(after.length).forEach((child) => child.remove());
}

// What several views show in the same way.

import { element, drawn } from "./dom.js";
import { count } from "./format.js";

const GOOD = new Set(["active"]);
// What somebody has stopped, or nobody does.
const STOPPED = new Set(["paused", "drained", "unserved", "refused", "stopped"]);

export const stateTone = (state) => (GOOD.has(state) ? "good" : STOPPED.has(state) ? "bad" : "fair");

/** A state as a word with a colour; the word alone is enough. */
export const badge = (word, tone, why = "") => element("span", { class: `badge ${tone}`, title: why || null }, word);

/** A headline number. */
export const tile = (label, value, tone = "", note = null) =>
  element(
    "div",
    { class: `tile ${tone}` },
    element("dt", {}, label),
    element("dd", {}, value, note === null ? null : element("small", {}, note)),
  );

/**
 * A table that becomes a list of cards where there is little room.
 *
 * `columns` are `[heading, class, cell of a row]`; `rows` anything those take. With `wishes` the columns that have a
 * fourth, the value to sort by, have a heading to press.
 */
export function table(caption, columns, rows, emptyText, wishes = null) {
  if (!rows.length) return element("p", { class: "faint" }, emptyText);
  const lines = rows.map((row) =>
    element(
      "tr",
      {},
      columns.map(([heading, kind, cell]) => element("td", { class: kind, "data-label": heading }, element("div", {}, cell(row)))),
    ),
  );
  return element(
    "div",
    { class: "scroll" },
    element(
      "table",
      {},
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, columns.map((column) => headingOf(column, wishes)))),
      element("tbody", {}, lines),
    ),
  );
}

function headingOf([heading, kind, , value], wishes) {
  if (!wishes || !value) return element("th", { scope: "col", class: kind }, heading);
  const direction = wishes.by !== heading ? null : wishes.isDown ? "descending" : "ascending";
  const mark = element("span", { "aria-hidden": "true" }, { ascending: " ▲", descending: " ▼" }[direction] ?? "");
  // The largest number is what somebody looks for first.
  const about = { type: "button", class: "sort", "data-do": "sort", "data-by": heading, "data-begins-down": kind === "number", title: "sort by it" };
  return element("th", { scope: "col", class: kind, "aria-sort": direction }, element("button", about, heading, mark));
}

/**
 * Horizontal bars, one a line: `{ name, records, href, beside, tone }`, where the last three may be left out. As long as
 * the numbers are large, but for what would not be seen at all.
 */
export function bars(label, lines) {
  const most = Math.max(1, ...lines.map(({ records }) => records));
  return element(
    "ul",
    { class: "bars", "aria-label": label },
    lines.map(({ name, records, href = null, beside = null, tone = "" }) =>
      element(
        "li",
        {},
        element("span", { class: "name", title: name }, href ? element("a", { href }, name) : name),
        // For who points at it; the name is the same link for who does not.
        href ? element("a", { href, class: "bar-link", tabindex: -1, "aria-hidden": "true" }, drawnBar(records, most, tone)) : drawnBar(records, most, tone),
        element("span", { class: "number" }, count(records)),
        beside,
      ),
    ),
  );
}

const drawnBar = (records, most, tone) => bar(records / most, tone);

const bar = (part, tone) =>
  drawn(
    "svg",
    { class: `bar-drawn ${tone}`, viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    drawn("rect", { class: "trough", width: 100, height: 10 }),
    drawn("rect", { class: "filled", width: part ? Math.max(1, 100 * part) : 0, height: 10 }),
  );

/**
 * Upright bars side by side, one for each step of time: `name(place)` says in words which, and `href(place)` where those
 * records are listed.
 */
export function columns(label, counts, name, href, [first, last]) {
  const total = counts.reduce((sum, records) => sum + records, 0);
  const largest = counts.indexOf(Math.max(...counts));
  const told = total ? `${count(total)} in all, most ${name(largest)}: ${count(counts[largest])}` : "nothing";
  return steps({ label, told, values: counts, largest, shown: count, name, href, first, last });
}

/**
 * The same for any values, where null is not known. The whole is one stop of the Tab key, at its largest bar. `told` says
 * it all in a line, and `shown` writes a value.
 */
export function steps({ label, told, values, largest, shown, name, href = null, first, last }) {
  const most = Math.max(1, ...values);
  const height = (value) => (value ? Math.max(2, (40 * value) / most) : 0);
  const bar = (value, place) => {
    const says = `${name(place)}: ${value === null ? "not known" : shown(value)}`;
    const about = { class: "step", tabindex: place === Math.max(0, largest) ? 0 : -1, "aria-label": says };
    return drawn(
      href ? "a" : "g",
      href ? { ...about, href: href(place) } : { ...about, role: "img" },
      drawn("title", {}, says),
      drawn("rect", { class: "reach", x: place, width: 1, height: 40 }),
      drawn("rect", { class: "filled", x: place + 0.1, y: 40 - height(value), width: 0.8, height: height(value) }),
    );
  };
  return element(
    "figure",
    { class: "steps-drawn" },
    drawn(
      "svg",
      { viewBox: `0 0 ${values.length} 40`, preserveAspectRatio: "none", role: "group", "aria-label": `${label}: ${told}; arrow keys go from bar to bar` },
      drawn("rect", { class: "trough", width: values.length, height: 40 }),
      values.map(bar),
    ),
    element("figcaption", {}, element("span", {}, first), element("span", {}, told), element("span", {}, last)),
  );
}

/** A button that asks before it changes something; nothing for who may not. */
export function changeButton(may, verb, scope, name, tone = "") {
  if (!may) return null;
  return element(
    "button",
    { type: "button", class: tone, "data-do": "change", "data-verb": verb, "data-scope": scope, "data-name": name, "aria-label": `${verb} ${name}` },
    verb === "pause" ? "Pause" : "Resume",
  );
}

// What somebody asks of a long list: words of a name, only problems, an order. It stands in the address, so that it can
// be sent to somebody else, and is there again after a reload.

import { element } from "./dom.js";

const YES = "yes";

/** What an address asks of a list: `#topics?words=orders&problems=yes&by=Pending&down=yes`. */
export const wishesOf = (asked) => ({
  words: asked.get("words") ?? "",
  hasProblems: asked.get("problems") === YES,
  by: asked.get("by") ?? "",
  isDown: asked.get("down") === YES,
});

/** The address of the same view with other wishes; what is empty is left out. */
export function addressWith(address, changes) {
  const [view, query] = address.split("?");
  const asked = new URLSearchParams(query);
  for (const [name, value] of Object.entries(changes)) value ? asked.set(name, value) : asked.delete(name);
  return asked.size ? `${view}?${asked}` : view;
}

/** The change of wishes by a press on the heading of a column: its own direction first, then the other one. */
export function turned(wishes, heading, beginsDown) {
  const isDown = wishes.by === heading ? !wishes.isDown : beginsDown;
  return { by: heading, down: isDown ? YES : "" };
}

/** Whether each word is in the name, wherever. */
export const isNamed = (name, words) =>
  words.toLowerCase().split(/\s+/).every((word) => name.toLowerCase().includes(word));

/**
 * The rows by the column that is asked for; of equal ones the first stays first, and what has no value is last.
 *
 * `columns` are those of a table, with the value to sort by as the fourth.
 */
export function sorted(rows, columns, { by, isDown }) {
  const valueOf = columns.find(([heading]) => heading === by)?.[3];
  if (!valueOf) return rows;
  const sign = isDown ? -1 : 1;
  return rows
    .map((row) => [valueOf(row), row])
    .sort(([one], [other]) => Number(one === null) - Number(other === null) || (one === null ? 0 : sign * compared(one, other)))
    .map(([, row]) => row);
}

const compared = (one, other) => (typeof one === "string" ? one.localeCompare(other) : one - other);

/**
 * Keeps the rows where they are while somebody points at one or has the focus in one: a button must not move away under
 * the hand that presses it. What is new comes last until then.
 */
export class Places {
  #asked = "";
  #names = new Map();

  /** The rows in their order, or in the order of before. */
  of(rows, nameOf, wishes, isHeld) {
    const asked = JSON.stringify(wishes);
    const placeOf = (row) => this.#names.get(nameOf(row)) ?? Infinity;
    const kept = isHeld && asked === this.#asked ? rows.toSorted((one, other) => placeOf(one) - placeOf(other) || 0) : rows;
    this.#asked = asked;
    this.#names = new Map(kept.map((row, place) => [nameOf(row), place]));
    return kept;
  }
}

/** The fields above a list; `shown` of `all` rows are there, and `problems` of all have one. */
export const fields = ({ words, hasProblems }, { label, shown, all, problems }) =>
  element(
    "form",
    { class: "wishes", "data-do": "wish", role: "search" },
    element("label", { for: "words" }, label),
    element("input", { id: "words", type: "search", name: "words", value: words, autocomplete: "off", spellcheck: "false" }),
    element(
      "label",
      { class: "check" },
      element("input", { type: "checkbox", name: "problems", value: YES, checked: hasProblems }),
      ` Only problems (${problems})`,
    ),
    element("span", { class: "small", role: "status" }, `${shown} of ${all} shown`),
  );

// What is pending in a delay topic, one by one, by id or all of it; and buttons that cancel or move one.

import { ask } from "./api.js";
import { element } from "./dom.js";
import { dated } from "./format.js";
import { table } from "./parts.js";

export const title = "Pending";
// Reads the state topic and segments: once, not every two seconds.
export const everyMs = 0;

const AT_ONCE = 50;
// What stands for bytes that are no text; such an id cannot be sent back as it is.
const NO_TEXT = "\ufffd";

/** The address is `#pending/topic/id/from`; an empty id is any, and what is behind a part can be left out. */
export async function load([name, id = "", from = ""]) {
  const names = name ? [name] : (await ask("/topics")).topics.map(({ topic }) => topic);
  if (names.length !== 1) return { names };
  const [topic] = names;
  const query = new URLSearchParams({ limit: AT_ONCE, ...(id && { id }), ...(from && { from }) });
  return { topic, id, page: await ask(`/topics/${encodeURIComponent(topic)}/schedules?${query}`) };
}

export const addressOf = (...parts) => `#pending/${parts.map(encodeURIComponent).join("/")}`;

export function render({ names, topic, id, page }, { mayChange }) {
  if (names) return element("div", {}, element("h1", {}, "Pending"), choice(names));
  return element("div", {}, element("h1", {}, `Pending in ${topic}`), byId(topic, id), schedulesTable(topic, page, mayChange), next(topic, id, page));
}

const choice = (names) =>
  table("Delay topics", [["Delay topic", "wide", (name) => element("a", { href: addressOf(name) }, name)]], names, "No delay topic is configured.");

const byId = (topic, id) =>
  element(
    "form",
    { class: "panel find", "data-do": "find-id", "data-topic": topic },
    element("label", { for: "deliver-id" }, "With this deliver-id; empty: all"),
    element(
      "div",
      { class: "line" },
      element("input", { id: "deliver-id", name: "deliver-id", value: id, placeholder: "order-42", autocomplete: "off", spellcheck: "false" }),
      element("button", { type: "submit" }, "Find"),
    ),
  );

const schedulesTable = (topic, { schedules }, mayChange) =>
  table(
    `Pending in ${topic}`,
    [
      ["At", "", ({ partition, offset }) => element("a", { href: `#find/${encodeURIComponent(topic)}/${partition}/${offset}` }, `${partition}/${offset}`)],
      ["Due", "", ({ due_ms: due }) => dated(due)],
      ["To", "wide", ({ targets }) => targets.join(", ")],
      ["Id", "wide", ({ id }) => id ?? element("span", { class: "faint" }, "–")],
      ["Series", "", ({ series }) => series ?? element("span", { class: "faint" }, "–")],
      ...(mayChange ? [["Change", "action", (each) => changeButtons(topic, each)]] : []),
    ],
    schedules,
    "Nothing is pending that is asked for.",
  );

function changeButtons(topic, { partition, due_ms: due, id }) {
  if (!id || id.includes(NO_TEXT)) return null;
  const about = { type: "button", class: "quiet", "data-topic": topic, "data-partition": partition, "data-due": due, "data-id": id };
  return [
    element("button", { ...about, "data-do": "move", "aria-label": `move ${id}` }, "Move it"),
    " ",
    element("button", { ...about, "data-do": "cancel", "aria-label": `cancel ${id}` }, "Cancel it"),
  ];
}

function next(topic, id, { next_from: from }) {
  if (from === null) return null;
  return element("p", {}, element("a", { href: addressOf(topic, id, from) }, "Go on with the next page"));
}

/** Said before something is cancelled. */
export const MEANING = "What is pending under this id in its partition, and due at this time, is not released. That cannot be undone.";

/** Said before something is moved. */
export const MOVES = "What is pending under this id in its partition, and due at this time, is due at another one; all else of it stays. A time that is past is now.";

/** Said where it was taken out and could not be written again. */
export const REFUSED = "It could not be written again: it is in the rejected topic.";

/** Where a schedule is cancelled or moved: only what was shown, and not what has taken its place since. */
export const pathOf = ({ topic, partition, due, id }) =>
  `/topics/${encodeURIComponent(topic)}/schedules/${encodeURIComponent(id)}?partition=${partition}&if_due_ms=${due}`;

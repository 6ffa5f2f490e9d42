// What is pending in a delay topic, one by one: all of it, or by id, key, target and due time; each can be cancelled or moved.

import { ask } from "./api.js";
import { element } from "./dom.js";
import { count, dated, fieldText, moment, span, zoneName } from "./format.js";
import { table } from "./parts.js";

export const title = "Pending";
// Reads the state topic and segments: once, not every two seconds.
export const everyMs = 0;

const AT_ONCE = 50;
const UPCOMING = 5;
// What can be asked for, as the API names it; in an address empty is any.
const ASKED = ["id", "key", "target", "due_from_ms", "due_to_ms", "recurring"];
const TIMES = ["due_from_ms", "due_to_ms"];
// What stands for bytes that are no text; such an id cannot be sent back as it is.
const NO_TEXT = "\ufffd";

/** The address is `#pending/topic?id=…&key=…&target=…&due_from_ms=…&due_to_ms=…&recurring=true&from=…`. */
export async function load([name], asked) {
  const names = name ? [name] : (await ask("/topics")).topics.map(({ topic }) => topic);
  if (names.length !== 1) return { names };
  const [topic] = names;
  const wanted = Object.fromEntries(ASKED.map((each) => [each, asked.get(each) ?? ""]));
  return { topic, wanted, page: await ask(`/topics/${encodeURIComponent(topic)}/schedules?${queryOf({ limit: AT_ONCE, upcoming: UPCOMING, from: asked.get("from"), ...wanted })}`) };
}

const queryOf = (asked) => new URLSearchParams(Object.entries(asked).filter(([, value]) => value || value === 0));

export function addressOf(topic, asked = {}) {
  const query = queryOf(asked);
  return `#pending/${encodeURIComponent(topic)}${query.size ? `?${query}` : ""}`;
}

/** The address of what somebody asks for with the form. */
export function addressOfForm(topic, form) {
  const asked = Object.fromEntries(ASKED.map((each) => [each, form.get(each) ?? ""]));
  for (const each of TIMES) if (asked[each]) asked[each] = new Date(asked[each]).getTime();
  return addressOf(topic, asked);
}

export function render({ names, topic, wanted, page }, { mayChange, seesPayload }) {
  if (names) return element("div", {}, element("h1", {}, "Pending"), choice(names));
  return element(
    "div",
    {},
    element("div", { class: "heading" }, element("h1", {}, `Pending in ${topic}`), element("a", { href: `#topic/${encodeURIComponent(topic)}` }, "by due time and target")),
    form(topic, wanted, seesPayload),
    mayChange ? element("p", {}, element("a", { href: `#cancel/${encodeURIComponent(topic)}` }, "Cancel all that match a query")) : null,
    schedulesTable(topic, page, mayChange, seesPayload),
    next(topic, wanted, page),
  );
}

const choice = (names) =>
  table("Delay topics", [["Delay topic", "wide", (name) => element("a", { href: addressOf(name) }, name)]], names, "No delay topic is configured.");

const form = (topic, wanted, seesPayload) =>
  element(
    "form",
    { class: "panel find", "data-do": "find-pending", "data-topic": topic },
    element(
      "div",
      { class: "fields" },
      field("deliver-id", "id", "With this deliver-id", wanted.id, { placeholder: "order-42" }),
      seesPayload ? field("record-key", "key", "With this key", wanted.key, { placeholder: "customer-7" }) : null,
      field("target", "target", "To this target", wanted.target, { placeholder: "orders" }),
      field("due-from", "due_from_ms", "Due from", timeText(wanted.due_from_ms), { type: "datetime-local", step: 1 }),
      field("due-to", "due_to_ms", "Due before", timeText(wanted.due_to_ms), { type: "datetime-local", step: 1 }),
    ),
    element(
      "p",
      { class: "line" },
      element("button", { type: "submit" }, "Find"),
      element(
        "label",
        { class: "check" },
        element("input", { id: "recurring", type: "checkbox", name: "recurring", value: "true", checked: wanted.recurring === "true" }),
        " Only recurring",
      ),
      element("a", { href: addressOf(topic) }, "Show all"),
      element("span", { class: "small" }, `What is empty is any; times are in ${zoneName()}.`),
    ),
  );

export const field = (id, name, label, value, more) =>
  element(
    "div",
    {},
    element("label", { for: id }, label),
    element("input", { id, name, value, autocomplete: "off", spellcheck: "false", ...more }),
  );

// An address may name any time, also one that no field takes.
export function timeText(ms) {
  const number = Number(ms);
  return ms && Number.isFinite(number) && Math.abs(number) < 8e15 ? fieldText(number) : "";
}

/** The columns that each table of pending schedules begins with. */
export const scheduleColumns = (topic) => [
  ["At", "", ({ partition, offset, due_ms: due }) => element("a", { href: `#find/${encodeURIComponent(topic)}/${partition}/${offset}?due=${due}` }, `${partition}/${offset}`)],
  ["Due", "", ({ due_ms: due }) => dated(due)],
  ["To", "wide", ({ targets }) => targets.join(", ")],
  ["Id", "wide", ({ id }) => id ?? nothing()],
];

const schedulesTable = (topic, { schedules, next_from: from }, mayChange, seesPayload) =>
  table(
    `Pending in ${topic}`,
    [
      ...scheduleColumns(topic),
      ...(seesPayload ? [["Key", "wide", ({ key }) => key ?? nothing()]] : []),
      ...(schedules.some(({ attempt }) => attempt !== null) ? [["Attempt", "number", ({ attempt }) => attempt ?? nothing()]] : []),
      ...(schedules.some(({ recurrence }) => recurrence) ? [["Recurs", "wide", recurs]] : []),
      ...(mayChange ? [["Change", "action", (each) => changeButtons(topic, each)]] : []),
    ],
    schedules,
    from === null ? "Nothing is pending that is asked for." : "None so far, and more to look through.",
  );

function recurs({ series, recurrence: rule }) {
  if (!rule) return nothing();
  const { every_ms: every, cron, zone, until_ms: until, number, times, next_ms: next } = rule;
  const end = until === null ? null : `, until ${moment(until)}`;
  return [
    element("div", {}, cron ? [element("code", {}, cron), ` in ${zone}`] : `every ${span(every)}`, end),
    element("div", { class: "small" }, `number ${count(number)}${times === null ? "" : ` of ${count(times)}`} of the series ${series}`),
    next.length ? element("ol", { class: "small next-times", "aria-label": "due next" }, next.map((ms) => element("li", {}, moment(ms)))) : null,
  ];
}

const nothing = () => element("span", { class: "faint" }, "–");

function changeButtons(topic, { partition, due_ms: due, spread_ms: spread, id }) {
  if (!id || id.includes(NO_TEXT)) return null;
  const about = { type: "button", class: "quiet", "data-topic": topic, "data-partition": partition, "data-due": due, "data-spread": spread, "data-id": id };
  return [
    element("button", { ...about, "data-do": "move", "aria-label": `move ${id}` }, "Move it"),
    " ",
    element("button", { ...about, "data-do": "cancel", "aria-label": `cancel ${id}` }, "Cancel it"),
  ];
}

function next(topic, wanted, { next_from: from }) {
  if (from === null) return null;
  return element("p", {}, element("a", { href: addressOf(topic, { ...wanted, from }) }, "Go on with the next page"));
}

/** Said before something is cancelled. */
export const MEANING = "What is pending under this id in its partition, and due at this time, is not released. That cannot be undone.";

/** Said before something is moved. */
export const MOVES = "What is pending under this id in its partition, and due at this time, is due at another one; all else of it stays. A time that is past is now.";

/** Said where it was taken out and could not be written again. */
export const REFUSED = "It could not be written again: it is in the rejected topic.";

/** The path of a schedule to be cancelled or moved, and of none that has taken its place since. The condition is the requested time. */
export const pathOf = ({ topic, partition, due, spread, id }) =>
  `/topics/${encodeURIComponent(topic)}/schedules/${encodeURIComponent(id)}?partition=${partition}&if_due_ms=${due - spread}`;

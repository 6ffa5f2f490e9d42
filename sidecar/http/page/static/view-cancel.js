// Cancels all pending schedules that match a query: what has to match, then how many that are, and only then the button.

import { ApiError, ask } from "./api.js";
import { element } from "./dom.js";
import { count, moment, zoneName } from "./format.js";
import { table } from "./parts.js";
import { addressOf as pendingOf, field, scheduleColumns, timeText } from "./view-pending.js";

export const title = "Cancel by query";
// A count reads state and segments: it is made once, not every two seconds.
export const everyMs = 0;

// A call counts for some seconds. Nobody waits for more of them; the command counts all.
const MOST_CALLS = 6;
const MOST_SHOWN = 5;
const REFUSED = [403, 422];
const ASKED = ["target", "id_prefix", "due_from_ms", "due_to_ms", "header", "value"];
const TIMES = ["due_from_ms", "due_to_ms"];

export const addressOf = (topic, asked = new URLSearchParams()) => `#cancel/${encodeURIComponent(topic)}${asked.size ? `?${asked}` : ""}`;

/** The address of what somebody asks for with the form. */
export function addressOfForm(topic, form) {
  const given = ASKED.map((each) => [each, form.get(each)]).filter(([, value]) => value);
  return addressOf(topic, new URLSearchParams(given.map(([name, value]) => [name, TIMES.includes(name) ? new Date(value).getTime() : value])));
}

/** The address is `#cancel/topic?target=…&id_prefix=…&due_from_ms=…&due_to_ms=…&header=name&value=…`. */
export async function load([topic], asked) {
  const wanted = Object.fromEntries(ASKED.map((each) => [each, asked.get(each) ?? ""]));
  const query = queryOf(wanted);
  if (!topic || !Object.keys(query).length) return { topic, wanted };
  try {
    return { topic, wanted, query, found: await matching(topic, query) };
  } catch (error) {
    // What is wrong with the query belongs beside it; all else is told as anywhere.
    if (error instanceof ApiError && REFUSED.includes(error.status)) return { topic, wanted, problem: error.message };
    throw error;
  }
}

/** The body of a cancellation: what is empty is any. */
function queryOf({ target, id_prefix: prefix, due_from_ms: from, due_to_ms: to, header, value }) {
  return {
    ...(target && { target }),
    ...(prefix && { id_prefix: prefix }),
    ...(from && { due_from_ms: Number(from) }),
    ...(to && { due_to_ms: Number(to) }),
    ...((header || value) && { header: { name: header, value } }),
  };
}

async function matching(topic, query) {
  const found = { matching: 0, first: [], isWhole: false };
  let from = "";
  for (let calls = 0; calls < MOST_CALLS && !found.isWhole; calls += 1) {
    const told = await ask(`/topics/${encodeURIComponent(topic)}/cancellations/dry-run${from && `?${new URLSearchParams({ from })}`}`, query);
    found.matching += told.matching;
    found.first = [...found.first, ...told.first].sort((one, other) => one.due_ms - other.due_ms).slice(0, MOST_SHOWN);
    from = told.next_from;
    found.isWhole = from === null;
  }
  return found;
}

export function render({ topic, wanted, query, found, problem }, { mayChange, seesPayload }) {
  if (!topic) return element("div", {}, element("h1", {}, title), element("p", {}, element("a", { href: "#pending" }, "Choose a delay topic"), "."));
  return element(
    "div",
    {},
    element("div", { class: "heading" }, element("h1", {}, `Cancel by query in ${topic}`), element("a", { href: pendingOf(topic) }, "what is pending")),
    mayChange ? form(topic, wanted, problem, seesPayload) : element("p", {}, "Only a token with the role ", element("b", {}, "operate"), " cancels."),
    found ? counted(topic, query, found, mayChange) : null,
  );
}

const form = (topic, wanted, problem, seesPayload) =>
  element(
    "form",
    { class: "panel find", "data-do": "count-matching", "data-topic": topic },
    element(
      "div",
      { class: "fields" },
      field("cancel-target", "target", "To this target", wanted.target, { placeholder: "billing" }),
      field("cancel-prefix", "id_prefix", "The deliver-id begins with", wanted.id_prefix, { placeholder: "order-" }),
      field("cancel-from", "due_from_ms", "Requested for then or later", timeText(wanted.due_from_ms), { type: "datetime-local", step: 1 }),
      field("cancel-to", "due_to_ms", "Requested for before", timeText(wanted.due_to_ms), { type: "datetime-local", step: 1 }),
      // The count of a query by header would confirm a guessed value.
      seesPayload ? field("cancel-header", "header", "With a header of this name", wanted.header, { placeholder: "customer" }) : null,
      seesPayload ? field("cancel-value", "value", "and of this value", wanted.value, { placeholder: "7" }) : null,
    ),
    element(
      "p",
      { class: "line" },
      element("button", { type: "submit" }, "Count what matches"),
      element("span", { class: "small" }, `All that is filled in has to match; times are in ${zoneName()}. Counting cancels nothing.`),
    ),
    element("p", { class: "refused", role: "alert" }, problem ?? ""),
  );

function counted(topic, query, found, mayChange) {
  const number = numberOf(found);
  return element(
    "section",
    { "aria-live": "polite" },
    element("h2", {}, found.matching || !found.isWhole ? `${number} pending match` : "Nothing that is pending matches"),
    found.isWhole ? null : element("p", { class: "small" }, "There is more to count than this page waits for. The command ", element("code", {}, "delay-router cancel --where … --dry-run"), " counts it all."),
    found.first.length ? table("The first of them that are due", scheduleColumns(topic), found.first, "") : null,
    mayChange && (found.matching || !found.isWhole)
      ? element("p", {}, element("button", { type: "button", "data-do": "cancel-where", "data-topic": topic, "data-query": JSON.stringify(query), "data-number": number }, "Cancel all that match"))
      : null,
  );
}

const numberOf = ({ matching: number, isWhole }) => `${isWhole ? "" : "at least "}${count(number)}`;

/** A query in words, said before something is cancelled. */
export function meaningOf({ target, id_prefix: prefix, due_from_ms: from, due_to_ms: to, header }) {
  const parts = [
    target && `to ${target}`,
    prefix && `with an id that begins with ${prefix}`,
    from && `requested for ${moment(from)} or later`,
    to && `requested for before ${moment(to)}`,
    header && `with the header ${header.name}: ${header.value}`,
  ].filter(Boolean);
  return `Everything pending ${parts.join(", and ")} is not released, also what came after the count. Recurring schedules that match end. That cannot be undone.`;
}

/** Said once the receipts are there. */
export function outcome(topic, { matched, estimated }) {
  const number = matched === null ? `About ${count(estimated)}` : count(matched);
  return `${number} pending in ${topic} ${matched === 1 ? "is" : "are"} cancelled and will not be released.`;
}

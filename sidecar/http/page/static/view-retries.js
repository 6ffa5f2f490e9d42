// A delay topic that counts attempts: how many records each attempt has, which had none left, and where a record may be.

import { ApiError, ask } from "./api.js";
import { element } from "./dom.js";
import { count, dated, moment, span } from "./format.js";
import { badge, table, tile } from "./parts.js";
import { addressOf as pendingOf } from "./view-pending.js";
import { stateOf } from "./view-topics.js";

export const title = "Retries";
export const everyMs = 2_000;

/** The address is `#retries/topic`. */
export const addressOf = (topic) => `#retries/${encodeURIComponent(topic)}`;

// What waits is counted record by record, so it is asked for seldom, whatever the view asks for meanwhile.
const AGAIN_MS = 30_000;
const known = new Map();

export async function load([name]) {
  const topic = await ask(`/topics/${encodeURIComponent(name)}`);
  return { topic, waiting: topic.retries ? await waitingOf(name) : null };
}

/** How many records wait for each attempt, or why that is not known; as it was until it is asked for again. */
async function waitingOf(name) {
  const before = known.get(name);
  if (before && Date.now() - before.askedMs < AGAIN_MS) return before.waiting;
  const waiting = await ask(`/topics/${encodeURIComponent(name)}/attempts`).catch((error) => {
    if (!(error instanceof ApiError)) throw error;
    return { problem: error.message };
  });
  known.set(name, { askedMs: Date.now(), waiting });
  return waiting;
}

export function render({ topic, waiting }) {
  const { topic: name, retries } = topic;
  return element(
    "div",
    {},
    element("div", { class: "heading" }, element("h1", {}, "Retries of ", element("a", { href: `#topic/${encodeURIComponent(name)}` }, name)), badge(...stateOf(topic))),
    retries ? counted(name, retries, waiting) : element("p", {}, "Its attempts are not counted. The key ", element("code", {}, "retry"), " of its configuration, or of a policy, makes them count."),
  );
}

function counted(name, retries, waiting) {
  const { attempts, dead_letter: dead, since_ms: since, exhausted, exhausted_per_minute: lately, uncounted } = retries;
  return [
    element(
      "dl",
      { class: "tiles" },
      tile("Attempts", count(attempts), "", "of a record, unless it says otherwise"),
      tile("Exhausted a minute", perMinute(lately), lately ? "bad" : "", "in the last one"),
      tile("Exhausted", count(exhausted), exhausted ? "fair" : "", since === null ? null : `since ${moment(since)}`),
      tile("Dead letters", element("code", {}, dead)),
    ),
    element("section", {}, element("h2", {}, "By attempt"), attemptsTable(retries, waiting), element("p", { class: "small" }, counting(waiting))),
    uncounted.length ? element("p", { class: "small" }, `Not counted, because no router reports it: partition ${uncounted.join(", ")}.`) : null,
    element("section", {}, element("h2", {}, "Exhausted last"), exhaustedTable(name, retries)),
    element("section", { class: "panel" }, element("h2", {}, "Why is a record not here?"), whereabouts(name, dead)),
  ];
}

// In the first minute after a take-over there is no whole one.
const perMinute = (number) => (number === null ? "?" : count(number));

function counting({ problem, records, is_whole: isWhole }) {
  if (problem) return `How many wait now is not known: ${problem}`;
  if (isWhole) return `Waiting: of all ${count(records)} that were pending within the last half minute.`;
  return `Waiting: of the first ${count(records)} that are stored. More are pending, which are not counted by attempt.`;
}

function attemptsTable({ by_attempt: groups, exhausted, exhausted_per_minute: lately, dead_letter: dead }, { by_attempt: waiting, exhausted: spent }) {
  const none = { attempt: "none left", waits: ["at once, to ", element("code", {}, dead)], released: exhausted, per_minute: lately, waiting: spent };
  return table(
    "Released records by attempt",
    [
      ["Attempt", "", ({ attempt }) => attempt],
      ["Waits", "wide", (each) => each.waits ?? waits(each)],
      ["Waiting", "number", (each) => (waiting ? count(each.waiting ?? waiting[each.attempt] ?? 0) : "?")],
      ["Last minute", "number", (each) => perMinute(each.per_minute)],
      ["Since the take-over", "number", ({ released }) => count(released)],
    ],
    [...groups, none],
    "None.",
  );
}

function waits({ wait_from_ms: from, wait_to_ms: to }) {
  if (from === null) return element("span", { class: "faint", title: "only records with a limit of their own have it" }, "–");
  return from === to ? span(to) : `${span(from)} to ${span(to)}`;
}

const exhaustedTable = (name, { last_exhausted: last }) =>
  table(
    "Records without an attempt left",
    [
      ["Record", "wide", ({ partition, offset }) => element("a", { href: `#find/${encodeURIComponent(name)}/${partition}/${offset}` }, `${name}/${partition}/${offset}`)],
      ["Exhausted", "", ({ at_ms: at }) => dated(at)],
    ],
    last,
    "None since the take-over.",
  );

const whereabouts = (name, dead) => [
  element(
    "ul",
    {},
    element("li", {}, "It waits for its attempt: ", element("a", { href: pendingOf(name) }, "what is pending"), " has its number."),
    element("li", {}, "It was released, and its consumer has not sent it back: it was handled, or is being handled."),
    element("li", {}, "It had no attempt left: it is in ", element("code", {}, dead), "."),
    element("li", {}, "It was ", element("a", { href: `#rejected/${encodeURIComponent(name)}` }, "rejected"), ": its headers could not be followed."),
  ),
  element("p", {}, element("a", { href: `#find?${new URLSearchParams({ topic: name })}` }, "Find a record"), " by its place, or by its id: that tells which, and its attempt."),
];

// One delay topic: what is pending by due time and target, its partitions, and what holds for it.

import { ask, nowMs } from "./api.js";
import { element } from "./dom.js";
import { count, countdown, duration, moment } from "./format.js";
import { topicLink } from "./links.js";
import { badge, bars, changeButton, columns, stateTone, table, tile } from "./parts.js";
import { pastOf, pastSection } from "./past.js";
import { addressOf } from "./view-pending.js";
import { addressOf as retriesOf } from "./view-retries.js";
import { firstDue, late, notIndexed, stateOf, sum } from "./view-topics.js";

export const title = "Topic";
export const everyMs = 2_000;

export async function load([name]) {
  const path = `/topics/${encodeURIComponent(name)}`;
  const [topic, pending, holds, policies, past] = await Promise.all([
    ask(path),
    ask(`${path}/pending`),
    ask(`${path}/policy`),
    ask("/policies"),
    pastOf(name),
  ]);
  return { topic, pending, past, values: holds.values, policies: policies.policies };
}

export function render({ topic, pending, past, values, policies }, { mayChange }, asked) {
  const held = sum(topic.partitions, "held");
  const { paused, drained } = topic;
  return element(
    "div",
    {},
    element(
      "div",
      { class: "heading" },
      element("h1", {}, topic.topic),
      topicLink(topic.topic),
      badge(...stateOf(topic)),
      changeButton(mayChange, paused ? "resume" : "pause", "topics", topic.topic, paused ? "" : "quiet"),
    ),
    stopped(paused, drained, values),
    element(
      "dl",
      { class: "tiles" },
      tile("Pending", count(topic.pending)),
      tile("Next due", countdown(firstDue(topic.partitions))),
      tile("Held", count(held), held ? "fair" : ""),
      tile("Not indexed", notIndexed(topic.partitions)),
      tile("Late, p50 and p99", late(topic), "", "of the last minutes"),
    ),
    element(
      "div",
      { class: "columns" },
      element("section", { class: "panel" }, element("h2", {}, "Pending by due time"), dueBars(topic.topic, pending)),
      element("section", { class: "panel" }, element("h2", {}, "Pending by target"), targetBars(topic.topic, pending, policies, mayChange)),
    ),
    element(
      "p",
      { class: "line" },
      element("a", { href: addressOf(topic.topic) }, "List the pending schedules"),
      topic.retries ? element("a", { href: retriesOf(topic.topic) }, "Attempts, and what is exhausted") : null,
    ),
    pastSection(past),
    element("section", { class: "panel" }, element("h2", {}, "Due in the next hour, by minute"), nextHour(topic.topic, pending)),
    element("section", { class: "panel" }, element("h2", {}, "Due in the next week, by hour"), nextWeek(topic.topic, pending)),
    element("section", {}, element("h2", {}, "Partitions"), partitionTable(topic)),
    element("section", {}, element("h2", {}, "What holds"), whatHolds(values, asked.get(WHOLE) === YES)),
  );
}

function stopped(paused, drained, values) {
  if (!paused && !drained) return null;
  const [word, key] = drained ? ["Drained", "drained"] : ["Paused", "paused"];
  const meaning = drained ? "no partition is served" : "nothing is released; new records are still indexed";
  const [until, reason] = drained ? ["", ""] : [values.paused_until.value, values.paused_reason.value];
  const told = `${word}${until ? ` until ${shown(until)}` : ""} by policy ${values[key].origin}: ${meaning}.`;
  return element("p", { class: "banner trouble" }, reason ? `${told} Reason: ${reason}` : told);
}

function dueBars(topic, { by_due: ranges, unserved }) {
  let from = null;
  const lines = ranges.map(({ within_s: within, records }) => {
    const name = rangeName(from ?? 0, within);
    const href = dueBetween(topic, from && from * 1_000, within === null ? null : within * 1_000);
    // What is overdue begins before all that is asked for, and what is due next at this moment.
    from = within;
    return { name, records, href, tone: within === 0 ? "bad" : "" };
  });
  const missing = unserved.length ? element("p", { class: "small" }, `Not counted, because no router reports it: partition ${unserved.join(", ")}.`) : null;
  return [bars("Pending by due time", lines), missing];
}

/** The address of what is due between so many milliseconds from now on; null: without a bound. */
function dueBetween(topic, fromMs, toMs) {
  const now = Math.round(nowMs());
  return addressOf(topic, { due_from_ms: fromMs === null ? "" : now + fromMs, due_to_ms: toMs === null ? "" : now + toMs });
}

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;

const nextHour = (topic, { next_hour: counts }) =>
  columns(
    "Due in the next hour, by minute",
    counts,
    (minute) => `in ${minute} to ${minute + 1} min`,
    (minute) => dueBetween(topic, minute * MINUTE_MS, (minute + 1) * MINUTE_MS),
    ["now", "1 h"],
  );

const nextWeek = (topic, { next_week: counts }) =>
  columns(
    "Due in the next week, by hour",
    counts,
    (hour) => `in ${hours(hour)} to ${hours(hour + 1)}`,
    (hour) => dueBetween(topic, hour * HOUR_MS, (hour + 1) * HOUR_MS),
    ["now", "7 d"],
  );

const hours = (number) => (number ? duration(number * HOUR_MS) : "0 h");

function rangeName(from, within) {
  if (within === 0) return "overdue";
  if (within === null) return `beyond ${duration(from * 1_000)}`;
  return from ? `${duration(from * 1_000)} to ${duration(within * 1_000)}` : `within ${duration(within * 1_000)}`;
}

function targetBars(topic, { by_target: targets, other_targets: others }, policies, mayChange) {
  const lines = Object.entries(targets).map(([name, records]) => {
    const paused = Boolean(policies[`target/${name}`]?.paused);
    const button = changeButton(mayChange, paused ? "resume" : "pause", "targets", name, paused ? "" : "quiet");
    const beside = element("span", { class: "beside" }, topicLink(name), paused ? badge("paused", "bad") : null, button);
    return { name, records, href: addressOf(topic, { target: name }), beside };
  });
  if (others) lines.push({ name: "other targets", records: others });
  return lines.length ? bars("Pending by target", lines) : element("p", { class: "faint" }, "Nothing is pending.");
}

const partitionTable = (topic) =>
  table(
    `Partitions of ${topic.topic}`,
    [
      ["Partition", "number", (each) => each.partition],
      ["State", "", (each) => badge(each.state, stateTone(each.state), each.why)],
      ["Pending", "number", (each) => known(each, each.pending)],
      ["Next due", "", (each) => countdown(each.next_due_ms)],
      ["Held", "number", (each) => known(each, each.held)],
      ["Not indexed", "number", (each) => notIndexed([each])],
      ["Served by", "wide", (each) => each.instance || element("span", { class: "faint" }, "nobody")],
      ["Why", "wide", (each) => each.why || element("span", { class: "faint" }, "–")],
    ],
    topic.partitions,
    "It has no partitions.",
  );

// Of a partition that nobody serves: what was reported last, with its age, or nothing at all.
function known({ state, age_ms: age }, number) {
  if (state !== "unserved") return count(number);
  return age === null ? "?" : [`${count(number)} `, element("span", { class: "faint" }, `${duration(age)} ago`)];
}

// What the address of the view asks: `#topic/orders.delay?all=yes` shows the settings that have their default, too.
const WHOLE = "all";
const YES = "yes";

function whatHolds(values, isWhole) {
  const all = Object.entries(values);
  const set = all.filter(([, { is_default: isDefault }]) => !isDefault);
  return [
    element(
      "form",
      { class: "wishes", "data-do": "wish" },
      element(
        "label",
        { class: "check" },
        element("input", { type: "checkbox", name: WHOLE, value: YES, checked: isWhole }),
        ` All settings (${all.length})`,
      ),
      element("span", { class: "small" }, isWhole ? "" : "Settings that have their default are left out."),
    ),
    holdsTable(isWhole ? all : set),
  ];
}

const holdsTable = (rows) =>
  table(
    "Effective settings",
    [
      ["Key", "", ([key]) => element("code", {}, key)],
      ["Value", "wide", ([, { value }]) => shown(value)],
      ["Set by", "", ([, { origin }]) => (origin === "configuration" ? element("span", { class: "faint" }, origin) : badge(origin, "fair"))],
    ],
    rows,
    "Nothing is set: every setting has its default.",
  );

const INSTANT = /^[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}(\.[0-9]+)?Z$/;

/** A value of a policy as people write it; an instant in the time of this browser, as all times of the page. */
export function shown(value) {
  if (INSTANT.test(value)) return moment(Date.parse(value));
  if (Array.isArray(value)) return value.length ? value.join(", ") : "none";
  if (typeof value === "object" && value !== null) return JSON.stringify(value);
  return value === "" ? "none" : String(value);
}

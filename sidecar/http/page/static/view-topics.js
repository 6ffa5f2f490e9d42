// All delay topics: what waits, what is due next, who serves what, and what nobody serves.

import { ApiError, ask, nowMs } from "./api.js";
import { element } from "./dom.js";
import { count, countdown, duration } from "./format.js";
import { Places, fields, isNamed, sorted, wishesOf } from "./list.js";
import { badge, changeButton, stateTone, table, tile } from "./parts.js";
import { pastOf, pastSection } from "./past.js";

export const title = "Topics";
export const everyMs = 2_000;

// To count what was rejected, rejected topics may have to be read: seldom, and nothing else waits for it.
const COUNT_EVERY_MS = 30_000;
const waiting = new Map();
let countedMs = 0;

// Beyond it a release is called late: far more than a busy router takes, far less than nobody minds.
const LATE_MS = 60_000;
const places = new Places();
// Below a longer list nobody would find the last hour.
const ON_A_SCREEN = 10;

export async function load() {
  const [status, past] = await Promise.all([ask("/topics"), pastOf()]);
  if (Date.now() - countedMs > COUNT_EVERY_MS) {
    countedMs = Date.now();
    void countRejected();
  }
  return { ...status, past };
}

async function countRejected() {
  try {
    const { topics } = await ask("/rejected");
    waiting.clear();
    for (const { topic, codes, is_whole: isWhole } of topics) {
      const records = codes.reduce((total, each) => total + each.records - each.redriven, 0);
      waiting.set(topic, { records, isWhole });
    }
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    // Counted again as soon as there is an answer, and until then the last count stays.
    if (error.isSilence) countedMs = 0;
  }
}

export function render({ topics, instances, kernels, past }, { mayChange }, asked) {
  const all = topics.flatMap((topic) => topic.partitions);
  const unserved = all.filter((each) => each.state === "unserved").length;
  const held = sum(all, "held");
  return element(
    "div",
    {},
    element("h1", { class: "unseen" }, "Topics"),
    element(
      "dl",
      { class: "tiles" },
      tile("Pending", count(sum(all, "pending")), "", unserved ? "without unserved partitions" : null),
      tile("Next due", countdown(firstDue(all))),
      tile("Held", count(held), held ? "fair" : "", held ? "due, and waiting for their target" : null),
      rejectedTile(topics),
      tile("Unserved", count(unserved), unserved ? "bad" : "", `of ${count(all.length)} partitions`),
      tile("Routers", element("a", { href: "#routers" }, count(instances.length)), instances.length ? "" : "bad", kernelsNote(kernels)),
    ),
    topics.length > ON_A_SCREEN ? pastSection(past) : null,
    topicList(topics, wishesOf(asked), mayChange),
    topics.length > ON_A_SCREEN ? null : pastSection(past),
  );
}

function topicList(topics, wishes, mayChange) {
  const columns = [
    ["Delay topic", "wide", nameCell, ({ topic }) => topic],
    ["State", "", stateCell, (topic) => WORST_FIRST.indexOf(stateOf(topic)[1])],
    ["Pending", "number", (topic) => pendingCell(topic), ({ pending }) => pending],
    ["Next due", "", (topic) => countdown(firstDue(topic.partitions)), (topic) => firstDue(topic.partitions)],
    ["Held", "number", (topic) => count(sum(topic.partitions, "held")), (topic) => sum(topic.partitions, "held")],
    ["Rejected", "number", rejectedCell, ({ topic }) => waiting.get(topic)?.records ?? null],
    ["Late, p50, p99", "number", late, ({ lateness_p99_ms: most }) => most],
    ["Not indexed", "number", (topic) => notIndexed(topic.partitions), ({ partitions }) => knownLag(partitions)],
    ["Served by", "wide", servedCell],
    ...(mayChange ? [["Change", "action", changeCell]] : []),
  ];
  const bad = new Set(topics.filter((topic) => problemsOf(topic).length));
  const wanted = topics.filter((topic) => isNamed(topic.topic, wishes.words) && (!wishes.hasProblems || bad.has(topic)));
  const isHeld = document.querySelector("main tbody:hover, main tbody:focus-within") !== null;
  const shown = places.of(sorted(wanted, columns, wishes), ({ topic }) => topic, wishes, isHeld);
  const nothing = !topics.length ? "No delay topic is configured." : bad.size || !wishes.hasProblems ? "None has such a name." : "None has a problem.";
  return [
    topics.length > 1 ? fields(wishes, { label: "Delay topics named", shown: shown.length, all: topics.length, problems: bad.size }) : null,
    table("Delay topics", columns, shown, nothing, topics.length > 1 ? wishes : null),
  ];
}

const WORST_FIRST = ["bad", "fair", "good"];

/** What is wrong with a topic, in words. What was rejected is not: it may lie there for good. */
export function problemsOf(topic) {
  const [state, tone] = stateOf(topic);
  const due = firstDue(topic.partitions);
  const words = [
    tone !== "good" && state,
    heldOf(topic),
    due !== null && nowMs() - due > LATE_MS && "overdue",
    topic.lateness_p99_ms > LATE_MS && "late",
  ];
  // The state may be that records are held.
  return [...new Set(words.filter(Boolean))];
}

/** `native kernel`, or how many run which; nothing of routers that do not tell. */
function kernelsNote(kernels) {
  const counts = new Map();
  for (const kernel of Object.values(kernels)) counts.set(kernel, (counts.get(kernel) ?? 0) + 1);
  if (!counts.size) return null;
  const told = [...counts].map(([kernel, number]) => (counts.size === 1 ? kernel : `${number} ${kernel}`)).sort();
  return `${told.join(", ")} kernel`;
}

// What is told of a partition that nobody serves is what its last router reported, and may be long past.
const served = (partitions) => partitions.filter(({ state }) => state !== "unserved");

/** How late the last releases were, half of them and all but one in a hundred. */
export function late({ lateness_p50_ms: half, lateness_p99_ms: most }) {
  // A cell breaks between two durations, and not within one.
  const [shortest, longest] = [half, most].map((ms) => duration(ms ?? 0).replaceAll(" ", "\u00a0"));
  return half === null ? "–" : `${shortest}, ${longest}`;
}

/** Of the partitions that are served. */
export const sum = (partitions, key) => served(partitions).reduce((total, each) => total + each[key], 0);

const knownLag = (partitions) => partitions.reduce((total, { lag }) => total + (lag ?? 0), 0);

/** Offsets not yet indexed: known of every partition, unless the brokers may not be asked. */
export function notIndexed(partitions) {
  const shown = count(knownLag(partitions));
  return partitions.every(({ lag }) => lag !== null) ? shown : `${shown} + ?`;
}

export function firstDue(partitions) {
  const known = served(partitions).map((each) => each.next_due_ms).filter((due) => due !== null);
  return known.length ? known.reduce((first, due) => Math.min(first, due)) : null;
}

/** `5 held`: due records that wait for their target; nothing where none does. */
function heldOf(topic) {
  const held = sum(topic.partitions, "held");
  return held ? `${count(held)} held` : null;
}

/** The state of a whole topic: that of a policy, else the worst of its partitions, else that it holds records. */
export function stateOf(topic) {
  if (topic.drained) return ["drained", "bad"];
  if (topic.paused) return ["paused", "bad"];
  const counts = new Map();
  for (const { state } of topic.partitions) counts.set(state, (counts.get(state) ?? 0) + 1);
  const others = [...counts].filter(([state]) => state !== "active");
  if (!topic.partitions.length) return ["no partitions", "bad"];
  if (!others.length) return heldOf(topic) ? [heldOf(topic), "fair"] : ["active", "good"];
  const tone = others.some(([state]) => stateTone(state) === "bad") ? "bad" : "fair";
  return [others.map(([state, number]) => (counts.size === 1 ? state : `${number} ${state}`)).join(", "), tone];
}

const nameCell = ({ topic }) => element("a", { href: `#topic/${encodeURIComponent(topic)}` }, topic);
const stateCell = (topic) => badge(...stateOf(topic), [...problemsOf(topic), whyOf(topic)].filter(Boolean).join("\n"));
const changeCell = ({ topic, paused }) =>
  changeButton(true, paused ? "resume" : "pause", "topics", topic, paused ? "" : "quiet");

// What was rejected and not driven again; with a + where the oldest of it was not counted.
function rejectedCell({ topic }) {
  const known = waiting.get(topic);
  if (!known) return element("span", { class: "faint", title: "not counted yet" }, "?");
  return element("a", { href: `#rejected/${encodeURIComponent(topic)}` }, `${count(known.records)}${known.isWhole ? "" : " +"}`);
}

function rejectedTile(topics) {
  const known = topics.map(({ topic }) => waiting.get(topic)).filter(Boolean);
  const total = known.reduce((all, { records }) => all + records, 0);
  const isAll = known.length === topics.length && known.every(({ isWhole }) => isWhole);
  return tile("Rejected", known.length ? `${count(total)}${isAll ? "" : " +"}` : "?", total ? "fair" : "", "and not driven again");
}

// A sum that leaves partitions out says so.
function pendingCell(topic) {
  const unserved = topic.partitions.some((each) => each.state === "unserved");
  return unserved ? [count(topic.pending), element("span", { title: "without unserved partitions" }, " + ?")] : count(topic.pending);
}

const whyOf = (topic) => [...new Set(topic.partitions.map((each) => each.why).filter(Boolean))].join("\n");

function servedCell({ partitions }) {
  const counts = new Map();
  for (const { instance } of partitions) if (instance) counts.set(instance, (counts.get(instance) ?? 0) + 1);
  if (!counts.size) return element("span", { class: "faint" }, "nobody");
  return element("span", {}, [...counts].map(([name, number]) => `${name} (${number})`).join(", "));
}

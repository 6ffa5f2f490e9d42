// What was rejected of a delay topic, by code; the records of one code, and a button that drives them again.

import { ask } from "./api.js";
import { element } from "./dom.js";
import { count, dated } from "./format.js";
import { badge, table } from "./parts.js";

export const title = "Rejected";
// Reads the rejected topic: once, not every two seconds.
export const everyMs = 0;

const AT_ONCE = 50;

/** The address is `#rejected/topic/code/partition/offset`, where each part may be left out with those behind it. */
export async function load([name, code, partition, offset]) {
  const names = name ? [name] : (await ask("/topics")).topics.map(({ topic }) => topic);
  if (names.length !== 1) return { names };
  const [topic] = names;
  const path = `/topics/${encodeURIComponent(topic)}/rejected`;
  if (!code) return { topic, counted: await ask(`${path}/codes`) };
  const query = new URLSearchParams({ code, limit: AT_ONCE, from: offset === undefined ? "0/0" : `${partition}/${offset}` });
  const [counted, page] = await Promise.all([ask(`${path}/codes`), ask(`${path}?${query}`)]);
  return { topic, counted, code, page };
}

export function render({ names, topic, counted, code, page }, { mayChange }) {
  if (names) return element("div", {}, element("h1", {}, "Rejected"), choice(names));
  return element(
    "div",
    {},
    element("h1", {}, `Rejected of ${topic}`),
    codesTable(topic, counted, mayChange),
    counted.is_whole ? null : element("p", { class: "small" }, "Of the newest records in the rejected topic; older ones lie there, too."),
    page ? element("section", {}, element("h2", {}, code), recordsTable(topic, code, page), next(topic, code, page)) : null,
  );
}

const addressOf = (...parts) => `#rejected/${parts.map(encodeURIComponent).join("/")}`;

const choice = (names) =>
  table("Delay topics", [["Delay topic", "wide", (name) => element("a", { href: addressOf(name) }, name)]], names, "No delay topic is configured.");

const codesTable = (topic, { codes }, mayChange) =>
  table(
    `Rejected of ${topic} by code`,
    [
      ["Code", "wide", ({ code }) => element("a", { href: addressOf(topic, code) }, code)],
      ["Rejected", "number", ({ records }) => count(records)],
      ["Driven again", "number", ({ redriven }) => count(redriven)],
      ["Newest", "", ({ last_ms: last }) => dated(last)],
      ...(mayChange ? [["Change", "action", (each) => redriveButton(topic, each)]] : []),
    ],
    codes,
    "Nothing is rejected.",
  );

function redriveButton(topic, { code, records, redriven }) {
  if (records === redriven) return null;
  return element(
    "button",
    { type: "button", class: "quiet", "data-do": "redrive", "data-topic": topic, "data-code": code, "aria-label": `drive ${code} again` },
    "Drive again",
  );
}

const recordsTable = (topic, code, { records }) =>
  table(
    `Records with ${code}`,
    [
      ["Came from", "", ({ source }) => element("a", { href: `#find/${source.split("/").map(encodeURIComponent).join("/")}` }, source)],
      ["Record", "", ({ partition, offset }) => element("a", { href: `#record/${encodeURIComponent(topic)}/${partition}/${offset}` }, `${partition}/${offset}`)],
      ["Rejected", "", ({ rejected_ms: at }) => dated(at)],
      ["Id", "wide", ({ id }) => id ?? element("span", { class: "faint" }, "–")],
      ["Driven again", "", driven],
      ["Why", "wide", ({ message, obstacle }) => (obstacle ? `${message} (${obstacle})` : message)],
    ],
    records,
    "None lies here.",
  );

function driven({ is_redriven: is, redriven_before: before }) {
  const word = is === null ? badge("not known", "fair") : is ? badge("yes", "good") : "no";
  return before ? [word, ` (${before} before)`] : word;
}

function next(topic, code, { next_from: from }) {
  if (from === null) return null;
  return element("p", {}, element("a", { href: addressOf(topic, code, ...from.split("/")) }, "Go on with the next page"));
}

/** Said before records are driven again. */
export const MEANING =
  "Each record goes back once, as it came, and is delivered or rejected anew. To change its headers: delay-router rejected redrive.";

/** What came of it, from the answer. */
export function outcome(code, { selected, already_redriven: before, driven: done, over_limit: often, not_whole: part }) {
  const stay = often + part;
  const rest = stay ? `; ${count(stay)} stay, which were driven too often or are not whole` : "";
  return `${code}: ${count(done)} of ${count(selected - before)} driven again${rest}.`;
}

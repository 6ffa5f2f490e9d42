// The routers of the group: what each is, how its process fares, and what it serves.

import { ask } from "./api.js";
import { element } from "./dom.js";
import { bytes, count, countdown } from "./format.js";
import { sorted, wishesOf } from "./list.js";
import { badge, table } from "./parts.js";

export const title = "Routers";
// A router tells of its process every ten seconds.
export const everyMs = 5_000;

export const load = () => ask("/routers");

export function render({ routers }, _, asked) {
  const wishes = wishesOf(asked);
  const versions = new Set(routers.map(({ version }) => version));
  const columns = [
    ["Router", "wide", ({ instance }) => instance, ({ instance }) => instance],
    ["Host", "wide", ({ host }) => host || unknown(), ({ host }) => host],
    ["Version", "", ({ version }) => (versions.size > 1 ? badge(version || "not told", "fair") : version || unknown()), ({ version }) => version],
    ["Kernel", "", ({ kernel }) => kernel || unknown(), ({ kernel }) => kernel],
    ["Since", "", ({ since_ms: since }) => countdown(since), ({ since_ms: since }) => since],
    ["CPU", "number", ({ cpu_cores: cores }) => (cores === null ? unknown() : percent(cores)), ({ cpu_cores: cores }) => cores],
    ["Memory", "number", ({ memory_bytes: memory }) => (memory === null ? unknown() : bytes(memory)), ({ memory_bytes: memory }) => memory],
    ["Pending", "number", ({ pending }) => count(pending), ({ pending }) => pending],
    ["Partitions", "number", ({ partitions }) => count(numberOf(partitions)), ({ partitions }) => numberOf(partitions)],
    ["Serves", "wide", ({ partitions }) => served(partitions)],
  ];
  return element(
    "div",
    {},
    element("h1", {}, "Routers"),
    element("p", { class: "small" }, "What each has told of itself in the last ten seconds or so. CPU is of one core: a busy router may use more than one."),
    versions.size > 1 ? element("p", { class: "banner trouble" }, "The routers are of several versions, as in a rolling upgrade.") : null,
    table("Routers of the group", columns, sorted(routers, columns, wishes), "No router reports.", wishes),
  );
}

const unknown = () => element("span", { class: "faint", title: "it does not tell" }, "–");
const percent = (cores) => `${Math.round(cores * 1_000) / 10}\u00a0%`;
const numberOf = (partitions) => Object.values(partitions).reduce((sum, numbers) => sum + numbers.length, 0);

function served(partitions) {
  const topics = Object.entries(partitions);
  if (!topics.length) return element("span", { class: "faint" }, "nothing: it stands by");
  return topics.map(([topic, numbers]) =>
    element("div", {}, element("a", { href: `#topic/${encodeURIComponent(topic)}` }, topic), ` ${ranges(numbers)}`),
  );
}

/** `0–5, 8`: numbers in a row are one range. */
export function ranges(numbers) {
  const found = [];
  for (const number of numbers) {
    const last = found.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else found.push([number, number]);
  }
  return found.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
}

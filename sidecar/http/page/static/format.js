// Numbers and times for people; the exact value is in the title of what shows them.

import { nowMs } from "./api.js";
import { element } from "./dom.js";

const NUMBERS = new Intl.NumberFormat("en");
const UNITS = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1_000],
];
// Beyond it there is no date in this language.
const LAST_MS = 8.64e15;

export const count = (number) => NUMBERS.format(number);

/** `3 d 4 h`: the two largest units, which is as much as anybody wants to read. */
export function duration(ms) {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const parts = [];
  let left = ms;
  for (const [unit, size] of UNITS) {
    const whole = Math.floor(left / size);
    left -= whole * size;
    if (whole || parts.length) parts.push(whole ? `${whole} ${unit}` : "");
    if (parts.length === 2) break;
  }
  return parts.filter(Boolean).join(" ");
}

/** `1.8 s`: a span that somebody has configured, so that no part of a short one is left out. */
export const span = (ms) => (ms % 1_000 && 1_000 < ms && ms < 10_000 ? `${Math.round(ms / 100) / 10} s` : duration(ms));

/** A moment as people of this browser write it, in its own time zone, which is named. */
export function moment(ms) {
  if (ms > LAST_MS) return "beyond every calendar";
  return new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
}

/** The time zone of this browser, as its people name it: `Europe/Berlin`. */
export const zoneName = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

/** `04:12 GMT+1`: a minute of the last hours, in the time zone of this browser, which is left out where it stands beside. */
export const clockTime = (ms, hasZone = true) =>
  new Date(ms).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", ...(hasZone && { timeZoneName: "short" }) });

const BYTES = [
  ["GiB", 2 ** 30],
  ["MiB", 2 ** 20],
  ["KiB", 2 ** 10],
];

/** `312 MiB`, `1.4 GiB`: three digits at most. */
export function bytes(number) {
  const [unit, size] = BYTES.find(([, least]) => number >= least) ?? ["B", 1];
  const value = number / size;
  return `${value < 10 ? Math.round(value * 10) / 10 : Math.round(value)}\u00a0${unit}`;
}

/** A moment as a field for a date and a time takes it, to the second. */
export function fieldText(ms) {
  const own = new Date(ms);
  return new Date(ms - own.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

const iso = (ms) => (ms > LAST_MS ? `${ms}` : new Date(ms).toISOString());

/** A due time as a countdown, which `tick` goes on with; a dash where there is none. */
export function countdown(dueMs) {
  if (dueMs === null || dueMs === undefined) return element("span", { class: "faint" }, "–");
  return element("time", { datetime: iso(dueMs), title: moment(dueMs), "data-due-ms": dueMs }, toGo(dueMs));
}

/** A moment, with how long ago or how soon it is. */
export const dated = (ms) => [moment(ms), " (", countdown(ms), ")"];

function toGo(dueMs) {
  const left = dueMs - nowMs();
  if (Math.abs(left) < 1_000) return "now";
  return left > 0 ? `in ${duration(left)}` : `${duration(-left)} ago`;
}

/** Bring every countdown on the page up to date. */
export function tick() {
  for (const shown of document.querySelectorAll("[data-due-ms]")) {
    const text = toGo(Number(shown.dataset.dueMs));
    if (shown.textContent !== text) shown.textContent = text;
  }
}

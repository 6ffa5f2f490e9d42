// The last hour, minute by minute: what was released, how late it was, and what was pending.

import { ask } from "./api.js";
import { element } from "./dom.js";
import { clockTime, count, duration } from "./format.js";
import { steps } from "./parts.js";

const MINUTES = 60;
const MINUTE_MS = 60_000;
// A minute is added each minute, whatever the view asks for meanwhile.
const AGAIN_MS = 30_000;
const known = new Map();

/** The last hour of a topic, or of all: asked for seldom, and as it was until then. */
export async function pastOf(topic = "") {
  const before = known.get(topic);
  if (before && Date.now() - before.askedMs < AGAIN_MS) return before.past;
  const past = await ask(topic ? `/topics/${encodeURIComponent(topic)}/history` : "/history");
  known.set(topic, { askedMs: Date.now(), past });
  return past;
}

/** Three drawings side by side, or why there are none. */
export function pastSection({ minutes, why }) {
  return element(
    "section",
    { class: "panel" },
    element("h2", {}, "The last hour, by minute"),
    minutes.length ? drawings(minutes) : element("p", { class: "faint" }, why ? `Not known: ${why}.` : "The first minute is not over yet."),
  );
}

const drawings = (minutes) =>
  element(
    "div",
    { class: "columns past" },
    drawing("Released", minutes, ({ released }) => released, count, (values) => `${count(values.reduce((sum, each) => sum + each, 0))} in all`),
    drawing("Late, p99", minutes, ({ lateness_p99_ms: late }) => late, duration, (_, last) => (last === null ? "nothing now" : `now ${duration(last)}`)),
    drawing("Pending", minutes, ({ pending }) => pending, count, (_, last) => `now ${count(last)}`),
  );

function drawing(label, minutes, valueOf, shown, summary) {
  const lastMs = minutes.at(-1).at_ms;
  const values = Array(MINUTES).fill(null);
  // Each at its own time: a minute in which nothing was read leaves a gap.
  for (const minute of minutes) {
    const place = MINUTES - 1 - Math.round((lastMs - minute.at_ms) / MINUTE_MS);
    if (place >= 0) values[place] = valueOf(minute);
  }
  const atMs = (place) => lastMs - (MINUTES - 1 - place) * MINUTE_MS;
  const largest = values.reduce((most, value, place) => (value !== null && value > (values[most] ?? -1) ? place : most), 0);
  const most = values[largest] ? `, most ${shown(values[largest])} at ${clockTime(atMs(largest), false)}` : "";
  const told = summary(values.filter((value) => value !== null), values.at(-1)) + most;
  return element(
    "div",
    {},
    element("h3", {}, label),
    steps({ label: `${label} in the last hour, by minute`, told, values, largest, shown, name: (place) => clockTime(atMs(place)), first: "1 h ago", last: clockTime(lastMs) }),
  );
}

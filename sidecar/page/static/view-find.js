// Where is my record? By its place in the delay topic, which is also in its header `delay-source`.

import { ApiError, ask } from "./api.js";
import { element } from "./dom.js";
import { dated } from "./format.js";
import { badge } from "./parts.js";

export const title = "Find a record";
// A look-up reads the state topic: it is made once, not every two seconds.
export const everyMs = 0;

const PLACE = /^\s*([a-zA-Z0-9._-]{1,249})\/([0-9]{1,10})\/([0-9]{1,19})\s*$/;
const TONES = { pending: "fair", released: "good", rejected: "bad", cancelled: "fair", replaced: "fair", answered: "good", unknown: "bad" };

/** The address of what is shown for a place somebody typed; null when it is none. */
export function addressOf(text) {
  const found = PLACE.exec(text);
  return found && `#find/${found.slice(1).map(encodeURIComponent).join("/")}`;
}

export async function load([topic, partition, offset]) {
  if (offset === undefined) return { place: "" };
  const place = `${topic}/${partition}/${offset}`;
  const path = `/topics/${encodeURIComponent(topic)}/partitions/${encodeURIComponent(partition)}/records/${encodeURIComponent(offset)}`;
  try {
    return { place, found: await ask(path) };
  } catch (error) {
    // What is wrong with the place belongs beside it; all else is told as anywhere.
    if (error instanceof ApiError && [404, 422].includes(error.status)) return { place, problem: error.message };
    throw error;
  }
}

export function render({ place, found, problem }) {
  return element(
    "div",
    {},
    element("h1", {}, "Find a record"),
    element(
      "form",
      { class: "panel find", "data-do": "find" },
      element("label", { for: "place" }, "Place: topic/partition/offset"),
      element(
        "div",
        { class: "line" },
        element("input", { id: "place", name: "place", value: place, placeholder: "orders.delay/3/4711", required: true, autocomplete: "off", spellcheck: "false", "aria-describedby": "place-help place-problem" }),
        element("button", { type: "submit" }, "Find"),
      ),
      element("p", { class: "small", id: "place-help" }, "The producer knows it from the acknowledgement; a released or rejected record has it in the header delay-source."),
      element("p", { class: "refused", id: "place-problem", role: "alert" }, problem ?? ""),
    ),
    found ? answer(found) : null,
  );
}

function answer(found) {
  return element(
    "section",
    { class: "panel", "aria-live": "polite" },
    element("div", { class: "heading" }, element("h2", {}, `${found.topic}/${found.partition}/${found.offset}`), badge(found.fate, TONES[found.fate] ?? "fair")),
    found.why ? element("p", {}, found.code ? `${found.code}: ${found.why}` : found.why) : null,
    element("ol", { class: "timeline" }, steps(found).map(step)),
  );
}

// What a receipt says of the record that it names.
const NAMED = { cancelled: "Cancelled", replaced: "Replaced", moved: "Moved" };

// What has happened, what has not yet, and what never will.
function steps({ fate, code, sent_ms: sent, indexed, due_ms: due, targets }) {
  const known = [];
  if (sent !== null && sent !== undefined) known.push(["Sent", "past", dated(sent)]);
  if (indexed === true) known.push(["Indexed", "past", "decided, and kept until it is due"]);
  if (indexed === false) known.push(["To be indexed", "next", "the router has not come to it yet"]);
  if (due !== null) known.push(["Due", fate === "pending" ? "next" : "past", dated(due)]);
  if (fate === "released") known.push(["Released", "past", ["not before it was due, to ", named(targets)]]);
  if (fate === "rejected") known.push(["Rejected", "bad", `in the rejected topic, with ${code || "a code"}`]);
  if (fate in NAMED) known.push([NAMED[fate], "past", "the receipt says so"]);
  if (fate === "answered") known.push(["Answered", "past", "a control, and no schedule itself"]);
  if (fate === "pending") known.push(code ? ["To be rejected", "next", `with ${code}`] : ["To be released", "next", ["to ", named(targets)]]);
  if (fate === "unknown") known.push(["Not known", "bad", "see above"]);
  return known;
}

const named = (targets) =>
  targets.length ? targets.map((target, place) => [place ? ", " : "", element("code", {}, target)]) : "its targets";

const step = ([name, tone, what]) => element("li", { class: tone }, element("b", {}, name), element("span", {}, what));

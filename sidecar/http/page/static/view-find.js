// Where is my record? By its place in the delay topic, which is also in its header `delay-source`; or by its id or key.

import { ApiError, ask } from "./api.js";
import { element } from "./dom.js";
import { dated, span } from "./format.js";
import { recordLink } from "./links.js";
import { badge, table } from "./parts.js";
import { contentOf, pathOf, recordPanel } from "./record.js";

export const title = "Find a record";
// A look-up reads the state topic: it is made once, not every two seconds.
export const everyMs = 0;

const PLACE = /^\s*([a-zA-Z0-9._-]{1,249})\/([0-9]{1,10})\/([0-9]{1,19})\s*$/;
const AT_ONCE = 50;
const TONES = { pending: "fair", released: "good", rejected: "bad", cancelled: "fair", replaced: "fair", answered: "good", unknown: "bad" };

/** The address of what is shown for a place somebody typed; null when it is none. */
export function addressOf(text) {
  const found = PLACE.exec(text);
  return found && `#find/${found.slice(1).map(encodeURIComponent).join("/")}`;
}

/** The address of what is found by an id or a key. */
export function addressOfNamed(form) {
  const given = [...form].filter(([, value]) => value);
  return `#find?${new URLSearchParams(given)}`;
}

/** The address is `#find/topic/partition/offset?due=…`, where the due time may be left out, or `#find?topic=…&id=…&key=…`. */
export async function load([topic, partition, offset], asked) {
  const names = (await ask("/topics")).topics.map((each) => each.topic);
  if (offset !== undefined) return { names, named: {}, ...(await atPlace(topic, partition, offset, asked.get("due") ?? "")) };
  const named = Object.fromEntries(asked);
  if (!named.topic || !(named.id || named.key)) return { names, named, place: "" };
  const places = await placesOf(named);
  const only = places.length === 1 && !places.unread.length ? await atPlace(...places[0].place.split("/")) : {};
  return { names, named, places, ...only, place: "" };
}

/** The records of an id, wherever they are; or of a key, where they are pending. `unread` says what may be missing. */
async function placesOf({ topic, id, key }) {
  const path = `/topics/${encodeURIComponent(topic)}`;
  if (id && !key) {
    const { traces, unread } = await ask(`${path}/ids/${encodeURIComponent(id)}`);
    const places = traces.map(({ source, fate, at_ms: atMs, place, why }) => ({ place: source, state: fate, atMs, told: fate === "pending" ? why : `${place}: ${why}` }));
    return Object.assign(places, { unread });
  }
  const query = new URLSearchParams({ limit: AT_ONCE, ...(id && { id }), key });
  const { schedules, next_from: next } = await ask(`${path}/schedules?${query}`);
  const places = schedules.map((each) => ({ place: `${topic}/${each.partition}/${each.offset}`, state: "pending", atMs: each.due_ms, told: each.id && `id ${each.id}` }));
  return Object.assign(places, { unread: next === null ? [] : ["more may be pending: see Pending"] });
}

async function atPlace(topic, partition, offset, due = "") {
  const place = `${topic}/${partition}/${offset}`;
  const path = pathOf(topic, partition, offset);
  try {
    const [found, content] = await Promise.all([ask(path), contentOf(path, due)]);
    return { place, found, content };
  } catch (error) {
    // What is wrong with the place belongs beside it; all else is told as anywhere.
    if (error instanceof ApiError && error.isOfTheQuestion) return { place, problem: error.message };
    throw error;
  }
}

export function render({ names, named, places, place, found, content, problem }, { seesPayload }) {
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
    element(
      "form",
      { class: "panel find", "data-do": "find-named" },
      element(
        "div",
        { class: "fields" },
        element("div", {}, element("label", { for: "named-topic" }, "Delay topic"), choice(names, named.topic)),
        field("named-id", "id", "With this deliver-id", named.id ?? "", "order-42"),
        seesPayload ? field("named-key", "key", "With this key", named.key ?? "", "customer-7") : null,
      ),
      element("p", { class: "line" }, element("button", { type: "submit" }, "Find"), element("span", { class: "small" }, help(seesPayload))),
    ),
    places ? placesTable(places, named) : null,
    found ? answer(found) : null,
    content ? recordPanel(content, seesPayload) : null,
  );
}

const help = (seesPayload) =>
  `By id: pending, and the newest of what was released, rejected or cancelled. ${seesPayload ? "By key: what is pending." : "Keys are for tokens that see payload."}`;

const field = (id, name, label, value, placeholder) =>
  element("div", {}, element("label", { for: id }, label), element("input", { id, name, value, placeholder, autocomplete: "off", spellcheck: "false" }));

const choice = (names, chosen) =>
  element("select", { id: "named-topic", name: "topic" }, names.map((name) => element("option", { value: name, selected: name === chosen }, name)));

function placesTable(places, { topic, id, key }) {
  return element(
    "section",
    { "aria-live": "polite" },
    table(
      `Records of ${topic} that are found`,
      [
        ["Place", "wide", ({ place }) => element("a", { href: addressOf(place) ?? "#find" }, place)],
        ["State", "", ({ state }) => badge(state, TONES[state])],
        ["Due, or written", "", ({ atMs }) => dated(atMs)],
        ["What is told", "wide", ({ told }) => told || element("span", { class: "faint" }, "–")],
      ],
      places,
      `Nothing with ${[id && `the id ${id}`, key && `the key ${key}`].filter(Boolean).join(" and ")} is ${key ? "pending" : "pending, released, rejected or cancelled"}.`,
    ),
    places.unread.map((each) => element("p", { class: "small" }, `Note: ${each}.`)),
  );
}

function answer(found) {
  const place = `${found.topic}/${found.partition}/${found.offset}`;
  return element(
    "section",
    { class: "panel", "aria-live": "polite" },
    element("div", { class: "heading" }, element("h2", {}, place), recordLink(place), badge(found.fate, TONES[found.fate] ?? "fair")),
    found.why ? element("p", {}, found.code ? `${found.code}: ${found.why}` : found.why) : null,
    element("ol", { class: "timeline" }, steps(found).map(step)),
  );
}

function releasedAs(ms, copy, targets) {
  if (!copy) return ["not before it was due, to ", named(targets)];
  return [dated(ms), " as ", element("code", {}, copy), " ", recordLink(copy), targets.length > 1 ? [", and to all of ", named(targets)] : null];
}

// What a receipt says of the record that it names.
const NAMED = { cancelled: "Cancelled", replaced: "Replaced", moved: "Moved" };

/** Which attempt it is, and what follows where it fails. */
function attempted({ number, most, exhausted, next_waits_ms: waits, dead_letter: dead }) {
  if (exhausted) return ["Exhausted", "bad", [`after ${number} attempts`, dead ? [": it goes to ", named([dead])] : null]];
  const which = most === null ? `${number}` : `${number} of ${most}`;
  if (most === null) return ["Attempt", "past", which];
  const all = waits.map(span).concat(number + waits.length < most ? ["…"] : []);
  return ["Attempt", "past", [`${which}; if it fails, the record `, all.length ? `waits ${all.join(", ")}` : ["goes to ", named([dead])]]];
}

// What has happened, what has not yet, and what never will.
function steps({ fate, code, sent_ms: sent, indexed, attempt, due_ms: due, released_ms: released, released_to: copy, targets }) {
  const known = [];
  if (sent !== null && sent !== undefined) known.push(["Sent", "past", dated(sent)]);
  if (indexed === true) known.push(["Indexed", "past", "decided after that, and kept until it is due; the moment is not noted"]);
  if (indexed === false) known.push(["To be indexed", "next", "the router has not come to it yet"]);
  if (attempt) known.push(attempted(attempt));
  if (due !== null) known.push(["Due", fate === "pending" ? "next" : "past", dated(due)]);
  if (fate === "released") known.push(["Released", "past", releasedAs(released, copy, targets)]);
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

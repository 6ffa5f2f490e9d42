// Signs in, shows the view that the address names, and keeps it up to date while somebody looks.

import { ApiError, ask, forget, remember, token } from "./api.js";
import { changeOf, confirmed } from "./changes.js";
import { element, morph } from "./dom.js";
import { duration, tick } from "./format.js";
import { useLinks } from "./links.js";
import { addressWith, turned, wishesOf } from "./list.js";
import * as cancel from "./view-cancel.js";
import * as find from "./view-find.js";
import * as pending from "./view-pending.js";
import * as policies from "./view-policies.js";
import * as record from "./view-record.js";
import * as rejected from "./view-rejected.js";
import * as retries from "./view-retries.js";
import * as routers from "./view-routers.js";
import * as schedule from "./view-schedule.js";
import * as topic from "./view-topic.js";
import * as topics from "./view-topics.js";

const VIEWS = { topics, topic, retries, pending, cancel, find, rejected, record, policies, routers, schedule };
// The link of a view that has none of its own.
const PARENTS = { topic: "topics", retries: "topics", cancel: "pending", record: "rejected" };
const SCHEDULE = "schedule";
const UNAUTHORIZED = 401;
// Beyond it numbers are called old.
const OLD_MS = 10_000;
// How often the router is asked whether the brokers answer, whatever the view asks for: people are told within 5 s.
const PULSE_MS = 1_000;
const PULSE_WITHIN_MS = 3_000;
const AGAIN_MS = 2_000;

const at = (id) => document.getElementById(id);
let caller = null;
let answeredMs = 0;
// What the page shows: the name of a view, the view, and the answer that it has loaded. The address may name the next
// view already: the browser tells of a new address later than it has one.
let shown = null;
// Each showing of a view; an answer to an earlier one is thrown away.
let turn = 0;
let timer = 0;
// Whether what is shown is of before: its last question had no answer.
let isOutdated = false;
let isSilent = false;
// Why the last change was not made; it stays until another change or view, whatever is asked meanwhile.
let refusal = "";

/** The address is `#view/part/part?what=is&asked=for`. */
function addressed() {
  const [path, query] = location.hash.slice(1).split("?");
  const [name, ...parts] = path.split("/");
  const known = caller?.role === "produce" ? SCHEDULE : Object.hasOwn(VIEWS, name) ? name : "topics";
  return { name: known, view: VIEWS[known], parts: parts.map(decoded), asked: new URLSearchParams(query) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Show the view of the address now, and again when its time has come. */
async function show() {
  clearTimeout(timer);
  const mine = ++turn;
  if (!token()) return signedOut("");
  let { name, view, parts, asked } = addressed();
  try {
    caller ??= await ask("/caller");
    if (mine !== turn) return;
    useLinks(caller);
    // Who may only produce has one view.
    ({ name, view, parts, asked } = addressed());
    signedIn(name, view);
    const data = await view.load(parts, asked);
    if (mine !== turn) return;
    isOutdated = false;
    answeredMs = Date.now();
    tell("trouble", refusal);
    at("main").classList.remove("outdated");
    shown = { name, view, data };
    draw();
  } catch (error) {
    if (mine !== turn) return;
    if (!(error instanceof ApiError)) throw error;
    if (error.status === UNAUTHORIZED) return signedOut("The router does not know this token.");
    outdated(error.message);
    if ((error.isSilence || (caller && view.everyMs)) && !document.hidden) timer = setTimeout(show, AGAIN_MS);
    return;
  } finally {
    if (mine === turn) showAge();
  }
  if (mine === turn && view.everyMs && !document.hidden) timer = setTimeout(show, view.everyMs);
}

/** Say why there is no newer answer. What is shown stays, in grey: it tells nothing of now, and no badge may look good. */
function outdated(why) {
  isOutdated = true;
  const main = at("main");
  tell("trouble", why);
  main.classList.add("outdated");
  if (!answeredMs) main.replaceChildren(element("p", { class: "faint" }, "There is nothing to show."));
  fade();
  showAge();
}

const fade = () => at("main").querySelectorAll(".badge").forEach((badge) => (badge.className = "badge"));

/** Ask whether the brokers answer, in each view: most views ask for nothing while somebody reads them. */
async function pulse() {
  if (!token() || !caller || document.hidden) return;
  let why = "";
  try {
    why = (await ask("/brokers", undefined, "GET", PULSE_WITHIN_MS)).detail;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (!error.isSilence) return;
    why = error.message;
  }
  if (!caller) return;
  if (why) outdated(why);
  else if (isSilent) void show();
  isSilent = Boolean(why);
}

const beat = () => pulse().finally(() => setTimeout(beat, PULSE_MS));

function draw() {
  const { name, view, data } = shown;
  const { asked } = addressed();
  const fresh = view.render(data, { mayChange: caller.role === "operate", seesPayload: caller.sees_payload }, asked);
  const main = at("main");
  const old = main.firstElementChild;
  fresh.id = `view-${name}`;
  if (old) morph(old, fresh);
  else main.append(fresh);
}

function signedIn(name, view) {
  at("sign-in").hidden = true;
  at("nav").hidden = at("session").hidden = at("main").hidden = false;
  at("role").textContent = caller.sees_payload ? `${caller.role}, sees payload` : caller.role;
  document.title = `${view.title} · Delay router`;
  for (const link of at("nav").children) {
    link.hidden = (link.hash === `#${SCHEDULE}`) !== (caller.role === "produce");
    const here = link.hash === `#${PARENTS[name] ?? name}`;
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function signedOut(why) {
  forget();
  caller = shown = null;
  refusal = "";
  answeredMs = 0;
  isOutdated = isSilent = false;
  turn += 1;
  clearTimeout(timer);
  at("main").replaceChildren();
  at("nav").hidden = at("session").hidden = at("main").hidden = true;
  tell("trouble", "");
  tell("done", "");
  at("refused").textContent = why;
  at("sign-in").hidden = false;
  at("token").focus();
}

function tell(id, text) {
  // A screen reader says again what is written again.
  if (at(id).textContent !== text) at(id).textContent = text;
  at(id).hidden = !text;
}

function showAge() {
  const { view } = addressed();
  const ageMs = Date.now() - answeredMs;
  const isOld = isOutdated || ageMs > OLD_MS;
  at("freshness").textContent = !answeredMs ? "" : isOld ? `${duration(ageMs)} old` : view.everyMs ? "live" : "";
  at("freshness").classList.toggle("old", isOutdated || (isOld && Boolean(view.everyMs)));
}

/** Tell why a request was not done, and return the reason; sign out where the router does not know the token. */
function refused(error) {
  if (!(error instanceof ApiError)) throw error;
  if (error.status === UNAUTHORIZED) {
    signedOut("The router does not know this token any more.");
    return "";
  }
  tell("trouble", error.message);
  return error.message;
}

/** Ask, and do what was asked for; then show what has become of it, and whether it was done. */
async function carryOut(change) {
  refusal = "";
  try {
    const done = await confirmed(change);
    if (done === null) return false;
    tell("done", done);
  } catch (error) {
    refusal = refused(error);
    return false;
  }
  await show();
  return true;
}

/** Fetch the value of the record that is shown, which nobody sees before they ask for it. */
async function showValue({ path }) {
  const asker = shown;
  try {
    const { value } = await ask(path);
    if (shown !== asker) return;
    asker.data.content.value = value;
    tell("trouble", "");
    draw();
  } catch (error) {
    refused(error);
  }
}

/** Show the same list otherwise, from the numbers that are here. */
function wish(changes) {
  history.replaceState(null, "", addressWith(location.hash || "#topics", changes));
  if (shown === null) return;
  draw();
  if (isOutdated) fade();
}

function onClick(event) {
  const pressed = event.target.closest("[data-do]");
  const asked = pressed && changeOf(pressed.dataset);
  if (asked) void carryOut(asked);
  if (pressed?.dataset.do === "nothing") at("sure").close("no");
  if (pressed?.dataset.do === "sort") wish(turned(wishesOf(addressed().asked), pressed.dataset.by, pressed.dataset.beginsDown !== undefined));
  if (pressed?.dataset.do === "show-value") void showValue(pressed.dataset);
  if (pressed?.dataset.do === "forget") signedOut("");
  if (pressed?.dataset.do === "skip") {
    event.preventDefault();
    at("main").focus();
  }
}

function onInput({ target }) {
  if (target.form?.dataset.do !== "wish") return;
  wish({ [target.name]: target.type === "checkbox" && !target.checked ? "" : target.value });
}

function onSubmit(event) {
  if (event.target.dataset.do === "wish") event.preventDefault();
  if (event.target.id === "sign-in") {
    event.preventDefault();
    remember(at("token").value.trim());
    at("token").value = "";
    void show();
  }
  if (event.target.dataset.do === SCHEDULE) {
    event.preventDefault();
    // What is written is not left to be written again.
    void carryOut(schedule.orderOf(new FormData(event.target))).then((isDone) => isDone && event.target.reset());
  }
  if (event.target.dataset.do === "find") {
    event.preventDefault();
    const address = find.addressOf(at("place").value);
    if (!address) at("place-problem").textContent = "A place is written topic/partition/offset, as in orders.delay/3/4711.";
    else goTo(address);
  }
  if (event.target.dataset.do === "find-named") {
    event.preventDefault();
    goTo(find.addressOfNamed(new FormData(event.target)));
  }
  if (event.target.dataset.do === "find-pending") {
    event.preventDefault();
    goTo(pending.addressOfForm(event.target.dataset.topic, new FormData(event.target)));
  }
  if (event.target.dataset.do === "count-matching") {
    event.preventDefault();
    goTo(cancel.addressOfForm(event.target.dataset.topic, new FormData(event.target)));
  }
}

// A drawing of many bars is one stop of the Tab key; the arrows go from bar to bar.
function onKey(event) {
  // The Enter that opened the question, still held down, answers nothing.
  if (event.repeat && event.key === "Enter" && event.target.closest?.("dialog")) event.preventDefault();
  const bar = event.target.closest?.(".step");
  const bars = bar ? [...bar.parentElement.querySelectorAll(".step")] : [];
  const place = bars.indexOf(bar);
  const next = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: bars.length - 1 }[event.key];
  if (!bars[next]) return;
  event.preventDefault();
  bars[next].focus();
}

function goTo(address) {
  if (address === location.hash) void show();
  else location.hash = address;
}

document.addEventListener("click", onClick);
document.addEventListener("input", onInput);
document.addEventListener("submit", onSubmit);
document.addEventListener("keydown", onKey);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && addressed().view.everyMs) void show();
});
addEventListener("hashchange", () => {
  tell("done", "");
  answeredMs = 0;
  shown = null;
  refusal = "";
  at("main").classList.remove("outdated");
  at("main").replaceChildren(element("p", { class: "faint" }, "Asking the router…"));
  void show();
});
setInterval(() => {
  // What is due is not released while nobody answers, so nothing counts down to it.
  if (!isOutdated) tick();
  showAge();
}, 500);
void show();
void beat();

// What is set while routers run, by scope, and who changed what.

import { ask } from "./api.js";
import { element } from "./dom.js";
import { dated } from "./format.js";
import { badge, changeButton, table } from "./parts.js";
import { shown } from "./view-topic.js";

export const title = "Policies";
export const everyMs = 2_000;

export async function load() {
  const [set, { changes }] = await Promise.all([ask("/policies"), ask("/policies/changes")]);
  return { ...set, changes };
}

export function render({ policies, unreadable, changes }, { mayChange }) {
  return element(
    "div",
    {},
    element("h1", {}, "Policies"),
    element("p", { class: "small" }, "The most specific scope that sets a key wins: target, then topic, then default, then the configuration file."),
    Object.entries(unreadable).map(([scope, why]) =>
      element("p", { class: "banner trouble" }, `${scope} cannot be understood (${why}); the last good one still holds.`),
    ),
    table(
      "Policies by scope",
      [
        ["Scope", "wide", ([scope]) => element("code", {}, scope)],
        ["Values", "wide", ([, values]) => Object.entries(values).map(valueLine)],
        ["Changed last", "wide", ([scope]) => lastChange(changes, scope)],
        ...(mayChange ? [["Change", "action", ([scope, values]) => resumeButton(scope, values)]] : []),
      ],
      Object.entries(policies),
      "No policy is set: the configuration file holds everywhere.",
    ),
    element(
      "section",
      {},
      element("h2", {}, "Changes"),
      table(
        "Changes of policies, the newest first",
        [
          ["When", "", ({ at_ms: at }) => dated(at)],
          ["Scope", "wide", ({ scope }) => element("code", {}, scope)],
          ["Change", "wide", (change) => difference(change, before(changes, change))],
          ["By", "wide", who],
        ],
        changes,
        "The policies topic tells of no change.",
      ),
      element("p", { class: "small" }, "As far back as the policies topic goes, which is compacted. Who may write to that topic may write any name."),
    ),
  );
}

function lastChange(changes, scope) {
  const last = changes.find((each) => each.scope === scope);
  return last ? [dated(last.at_ms), element("div", { class: "small" }, who(last))] : element("span", { class: "faint" }, "not known");
}

const who = ({ by, through, address }) => {
  const told = [by, through && `by ${through}`, address && `from ${address}`].filter(Boolean);
  return told.length ? told.join(" ") : element("span", { class: "faint" }, "not said");
};

// The one in front of it, of the same scope; undefined where the topic does not have that any more.
const before = (changes, change) => changes.slice(changes.indexOf(change) + 1).find(({ scope }) => scope === change.scope);

/** What a change has set, and what it has taken back. */
function difference({ values }, earlier) {
  if (values === null) return element("div", {}, "removed");
  const old = earlier?.values ?? {};
  const set = Object.entries(values).filter(([key, value]) => JSON.stringify(old[key]) !== JSON.stringify(value));
  const unset = Object.keys(old).filter((key) => !Object.hasOwn(values, key));
  if (!set.length && !unset.length) return "as before";
  return [set.map(valueLine), unset.map((key) => element("div", {}, element("code", {}, key), " unset"))];
}

const valueLine = ([key, value]) =>
  element("div", {}, (key === "paused" || key === "drained") && value ? badge(key, "bad") : [element("code", {}, key), ` ${shown(value)}`]);

function resumeButton(scope, values) {
  const [kind, ...name] = scope.split("/");
  return values.paused && name.length ? changeButton(true, "resume", `${kind}s`, name.join("/")) : null;
}

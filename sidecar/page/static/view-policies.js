// What is set while routers run, by scope.

import { ask } from "./api.js";
import { element } from "./dom.js";
import { badge, changeButton, table } from "./parts.js";
import { shown } from "./view-topic.js";

export const title = "Policies";
export const everyMs = 2_000;

export const load = () => ask("/policies");

export function render({ policies, unreadable }, { mayChange }) {
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
        ...(mayChange ? [["Change", "action", ([scope, values]) => resumeButton(scope, values)]] : []),
      ],
      Object.entries(policies),
      "No policy is set: what the configuration file says holds everywhere.",
    ),
  );
}

const valueLine = ([key, value]) =>
  element("div", {}, (key === "paused" || key === "drained") && value ? badge(key, "bad") : [element("code", {}, key), ` ${shown(value)}`]);

function resumeButton(scope, values) {
  const [kind, ...name] = scope.split("/");
  return values.paused && name.length ? changeButton(true, "resume", `${kind}s`, name.join("/")) : null;
}

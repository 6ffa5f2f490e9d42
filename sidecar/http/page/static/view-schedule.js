// Writes one record to a delay topic, for who may produce.

import { element } from "./dom.js";
import { moment, zoneName } from "./format.js";

export const title = "Schedule a record";
export const everyMs = 0;

export const load = async () => ({});

export const render = () =>
  element(
    "div",
    {},
    element("h1", {}, title),
    element(
      "form",
      { class: "panel find", "data-do": "schedule" },
      element(
        "div",
        { class: "fields" },
        field("schedule-topic", "topic", "Delay topic", { placeholder: "orders.delay", required: true, pattern: "[a-zA-Z0-9._\\-]{1,249}" }),
        field("schedule-after", "after", "Due after", { placeholder: "15m" }),
        field("schedule-at", "at", `Or at, in ${zoneName()}`, { type: "datetime-local", step: 1 }),
        field("schedule-id", "id", "Id, to find and cancel it", { placeholder: "order-42" }),
        field("schedule-target", "target", "Target, if not the default one", { placeholder: "orders" }),
        field("schedule-key", "key", "Key", { placeholder: "customer-7" }),
      ),
      element("label", { for: "schedule-value" }, "Value"),
      element("textarea", { id: "schedule-value", name: "value", rows: 5, spellcheck: "false" }),
      element("p", { class: "line" }, element("button", { type: "submit" }, "Schedule it"), element("span", { class: "small" }, "Key and value are text; what is empty is left out, but for the value, which is empty then.")),
    ),
  );

const field = (id, name, label, more) =>
  element("div", {}, element("label", { for: id }, label), element("input", { id, name, autocomplete: "off", spellcheck: "false", ...more }));

/** The change that the filled form stands for. */
export function orderOf(form) {
  const given = Object.fromEntries(form);
  const headers = [
    ["deliver-after", given.after.trim()],
    ["deliver-at", given.at && `${new Date(given.at).getTime()}`],
    ["deliver-id", given.id],
    ["deliver-to", given.target.trim()],
  ];
  const topic = given.topic.trim();
  return {
    question: `Write a record to ${topic}?`,
    meaning: "The router takes it only if it would not be rejected. Written twice, it is two records.",
    word: "Schedule it",
    path: `/topics/${encodeURIComponent(topic)}/records`,
    body: {
      ...(given.key && { key: given.key }),
      value: given.value,
      headers: headers.filter(([, value]) => value).map(([name, value]) => ({ name, value })),
    },
    done: ({ partition, offset, due_ms: due, targets }) => `Written as ${topic}/${partition}/${offset}, due at ${moment(due)}, to ${targets.join(", ")}.`,
  };
}

// One rejected record as it lies in the rejected topic.

import { element } from "./dom.js";
import { dated } from "./format.js";
import { contentOf, pathOf, recordPanel } from "./record.js";

export const title = "Rejected record";
export const everyMs = 0;

/** The address is `#record/topic/partition/offset`: a delay topic, and a place in its rejected topic. */
export async function load([topic = "", partition = "", offset = ""]) {
  return { topic, partition, offset, content: await contentOf(pathOf(topic, partition, offset, "rejected/")) };
}

export function render({ topic, partition, offset, content }, { seesPayload }) {
  return element(
    "div",
    {},
    element("div", { class: "heading" }, element("h1", {}, `Rejected of ${topic}, at ${partition}/${offset}`), element("a", { href: `#rejected/${encodeURIComponent(topic)}` }, "all of them")),
    content.timestamp_ms === undefined ? null : element("p", {}, "Rejected ", dated(content.timestamp_ms)),
    recordPanel(content, seesPayload),
  );
}

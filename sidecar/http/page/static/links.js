// Links to topics and records in another console, where the configuration of the router names one.

import { element } from "./dom.js";

let ofTopic = "";
let ofRecord = "";

/** Use the addresses that the router tells; empty: no links. */
export function useLinks({ topic_link: topic, record_link: record }) {
  ofTopic = topic;
  ofRecord = record;
}

/** A link to a topic of the cluster; nothing where none is configured. */
export const topicLink = (topic) => link(ofTopic, { topic }, `${topic} in the other console`);

/** A link to the record at `topic/partition/offset`. */
export function recordLink(place) {
  const [topic, partition, offset] = place.split("/");
  return link(ofRecord, { topic, partition, offset }, `${place} in the other console`);
}

function link(template, values, label) {
  if (!template) return null;
  const href = filled(template, values);
  // The router takes no other ones; nor does the page.
  if (!["http:", "https:"].includes(new URL(href).protocol)) return null;
  return element("a", { class: "outside", href, target: "_blank", rel: "noopener noreferrer", title: label, "aria-label": label }, "↗");
}

/** Each name in braces stands for its value. */
export const filled = (template, values) => template.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(values[name]));

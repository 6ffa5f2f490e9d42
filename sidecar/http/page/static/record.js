// What one record holds: the names of its headers for everybody, and the rest where the token may see it.

import { ApiError, ask } from "./api.js";
import { element } from "./dom.js";
import { bytes, count } from "./format.js";
import { table } from "./parts.js";

/** Where the API has a record; `within` is empty for a delay topic, and "rejected/" for its rejected topic. */
export const pathOf = (topic, partition, offset, within = "") =>
  `/topics/${encodeURIComponent(topic)}/${within}partitions/${encodeURIComponent(partition)}/records/${encodeURIComponent(offset)}`;

/** The headers of a record, or why there are none. */
export async function contentOf(path, due = "") {
  const query = due ? `?${new URLSearchParams({ due_ms: due })}` : "";
  try {
    return { valuePath: `${path}/value${query}`, ...(await ask(`${path}/headers${query}`)) };
  } catch (error) {
    if (error instanceof ApiError && error.isOfTheQuestion) return { problem: error.message };
    throw error;
  }
}

/** Headers, key and value; the value is asked for by a press of a button, and is `value` from then on. */
export function recordPanel({ problem, key, headers, more_headers: more, value_bytes: size, valuePath, value }, seesPayload) {
  if (problem) return element("section", { class: "panel record" }, element("h2", {}, "Headers"), element("p", {}, problem));
  return element(
    "section",
    { class: "panel record" },
    element("h2", {}, "Headers"),
    table(
      "Headers of the record",
      [
        ["Name", "wide", ({ name }) => element("bdi", {}, element("code", {}, name))],
        ["Size", "number", ({ value: part }) => (part.form === "null" ? "–" : bytes(part.size_bytes))],
        ["Value", "wide", ({ value: part }) => shownPart(part)],
      ],
      headers,
      "The record has no headers.",
    ),
    more ? element("p", { class: "small" }, `And ${count(more)} more headers.`) : null,
    element("h2", {}, "Key"),
    shownPart(key),
    element("h2", {}, "Value"),
    size === null ? shownPart({ form: "null" }) : valuePart(size, valuePath, value, seesPayload),
    seesPayload ? null : element("p", { class: "small" }, "Values and keys are for tokens that see payload."),
  );
}

function valuePart(size, path, value, seesPayload) {
  if (value) return shownPart(value);
  const button = element("button", { type: "button", class: "quiet", "data-do": "show-value", "data-path": path }, "Show the value");
  return element("p", { class: "line" }, bytes(size), seesPayload ? button : faint("masked"));
}

const faint = (text) => element("span", { class: "faint" }, text);

function shownPart({ form, size_bytes: size, shown, is_cut: isCut }) {
  if (form === "null") return faint("null");
  if (form === "masked") return faint(`masked, ${bytes(size)}`);
  if (!size) return faint("empty");
  return [
    element("pre", { class: "content", dir: "auto", tabindex: 0, "aria-label": `as ${form}` }, form === "json" ? indented(shown) : form === "hex" ? spaced(shown) : shown),
    form === "hex" || isCut ? element("p", { class: "small" }, [form === "hex" ? "hexadecimal" : null, isCut ? `the beginning of ${bytes(size)}` : null].filter(Boolean).join(", ")) : null,
  ];
}

const spaced = (digits) => digits.replace(/..(?=.)/g, "$& ");

/** JSON with a line for each value. It changes only the blanks between: a large number stays as it was written. */
export function indented(text) {
  let made = "";
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  const pieces = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+/g) ?? [];
  pieces.forEach((piece, place) => {
    const isEmpty = "{[".includes(pieces[place - 1]) && "}]".includes(piece);
    if ("}]".includes(piece)) made += (depth -= 1) < 0 || isEmpty ? "" : line();
    made += piece;
    if ("{[".includes(piece)) made += ((depth += 1), "}]".includes(pieces[place + 1])) ? "" : line();
    if (piece === ",") made += line();
    if (piece === ":") made += " ";
  });
  return made;
}

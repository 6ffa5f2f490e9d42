// What a button of the page changes: what is asked before, what is sent, and what is said of the answer.

import { ask } from "./api.js";
import { fieldText, moment, zoneName } from "./format.js";
import * as cancel from "./view-cancel.js";
import * as pending from "./view-pending.js";
import * as rejected from "./view-rejected.js";

const MEANINGS = {
  pause: {
    topics: "Nothing is released from this delay topic until it is resumed. New records are still indexed.",
    targets: "Due records for this target are held until it is resumed. Records for other targets go on.",
  },
  resume: {
    topics: "Records that have become due meanwhile are released at once, in order.",
    targets: "What is held for this target is released at once, in order.",
  },
};

const at = (id) => document.getElementById(id);

/**
 * Ask first, then change something, and say what came of it, as `done` makes it of the answer; null where the person does
 * nothing. With `whenMs` a time is asked for, and with `hasEnd` an end and a reason.
 *
 * One button looks like the answer, has the focus, and is what Enter presses: what was asked for, or, where that
 * `isFinal` and cannot be undone, *Do nothing*.
 */
export async function confirmed({ question, meaning, word, path, body, method, done, whenMs, hasEnd = false, isFinal = false }) {
  const sure = at("sure");
  at("sure-question").textContent = question;
  at("sure-meaning").textContent = meaning;
  at("sure-yes").textContent = word;
  at("sure-when").hidden = whenMs === undefined;
  at("when").required = whenMs !== undefined;
  at("when").value = whenMs === undefined ? "" : fieldText(whenMs);
  at("sure-until").hidden = !hasEnd;
  for (const each of sure.querySelectorAll("[data-zone]")) each.textContent = zoneName();
  at("until").value = at("reason").value = "";
  at("sure-yes").className = isFinal ? "final" : "";
  at("sure-no").className = isFinal ? "" : "quiet";
  sure.returnValue = "no";
  sure.showModal();
  at(isFinal ? "sure-no" : "sure-yes").focus();
  await new Promise((closed) => sure.addEventListener("close", closed, { once: true }));
  if (sure.returnValue !== "yes") return null;
  const given = hasEnd ? ending() : body;
  const asked = whenMs === undefined ? given : { due_ms: new Date(at("when").value).getTime() };
  return done(await ask(path, asked, method));
}

/** The end and the reason that were given, each only where it was. */
function ending() {
  const [until, reason] = [at("until").value, at("reason").value.trim()];
  return { ...(until && { until: new Date(until).toISOString() }), ...(reason && { reason }) };
}

function switched({ verb, scope, name }) {
  const word = verb === "pause" ? "Pause" : "Resume";
  return {
    question: `${word} ${name}?`,
    meaning: MEANINGS[verb][scope],
    word,
    path: `/${scope}/${encodeURIComponent(name)}/${verb}`,
    body: {},
    hasEnd: verb === "pause",
    done: () => `${verb === "pause" ? "Paused" : "Resumed"} ${name}. Routers follow within a second.`,
  };
}

const redriven = (asked) => ({
  question: `Drive ${asked.code} of ${asked.topic} again?`,
  meaning: rejected.MEANING,
  word: "Drive again",
  isFinal: true,
  path: `/topics/${encodeURIComponent(asked.topic)}/rejected/redrive`,
  body: { codes: [asked.code] },
  done: (answer) => rejected.outcome(asked.code, answer),
});

const cancelled = (asked) => ({
  question: `Cancel ${asked.id} of ${asked.topic}?`,
  meaning: pending.MEANING,
  word: "Cancel it",
  isFinal: true,
  path: pending.pathOf(asked),
  method: "DELETE",
  done: () => `${asked.id} is cancelled and will not be released.`,
});

function cancelledWhere({ topic, query, number }) {
  const body = JSON.parse(query);
  return {
    question: `Cancel ${number} pending in ${topic}?`,
    meaning: cancel.meaningOf(body),
    word: "Cancel them all",
    isFinal: true,
    path: `/topics/${encodeURIComponent(topic)}/cancellations`,
    body,
    done: (answer) => cancel.outcome(topic, answer),
  };
}

const moved = (asked) => ({
  question: `Move ${asked.id} of ${asked.topic}?`,
  meaning: pending.MOVES,
  word: "Move it",
  path: pending.pathOf(asked),
  method: "PATCH",
  whenMs: Number(asked.due),
  done: ({ due_ms: due }) => (due === null ? pending.REFUSED : `${asked.id} is due at ${moment(due)} now.`),
});

const CHANGES = { change: switched, redrive: redriven, cancel: cancelled, "cancel-where": cancelledWhere, move: moved };

/** The change that a button stands for; nothing for any other button. */
export const changeOf = (asked) => (Object.hasOwn(CHANGES, asked.do) ? CHANGES[asked.do](asked) : null);

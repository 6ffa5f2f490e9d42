// Asks the admin API, always with the token as a header: there is no cookie that another page could use.

const KEY = "delay-router.token";

/** A request that was not done; `status` is 0 when nothing answered. */
export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }

  /** Whether the question names a thing that is not there, or cannot be read: that is told beside the question. */
  get isOfTheQuestion() {
    return [404, 422].includes(this.status);
  }

  /** Whether the router or the brokers were not there to answer, so that it may be asked again. */
  get isSilence() {
    return [0, 503, 504].includes(this.status);
  }
}

// A request that waits for brokers is answered by the router within 20 s; a router that hangs answers none.
const WITHIN_MS = 25_000;

// By how much the router's clock is ahead of this one. Its Date header has whole seconds only, so less than two say nothing.
let aheadMs = 0;

/** Now, by the router's clock: due times are its business. */
export const nowMs = () => Date.now() + aheadMs;

export const token = () => sessionStorage.getItem(KEY);
export const remember = (value) => sessionStorage.setItem(KEY, value);
export const forget = () => sessionStorage.removeItem(KEY);

/** The answer to a question, or to a change where there is a body or another method. */
export async function ask(path, body, method = body === undefined ? "GET" : "POST", withinMs = WITHIN_MS) {
  const options = { method, headers: { authorization: `Bearer ${token()}` }, credentials: "omit", cache: "no-store" };
  options.signal = AbortSignal.timeout(withinMs);
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(`api/v1${path}`, options);
  } catch {
    throw new ApiError(0, "The router does not answer.");
  }
  readClock(answer);
  const told = await answer.json().catch(() => null);
  if (told === null && answer.ok) throw new ApiError(0, "The router did not end its answer.");
  if (!answer.ok) throw new ApiError(answer.status, told?.detail || `The router answered ${answer.status}.`);
  return told;
}

function readClock(answer) {
  const theirs = Date.parse(answer.headers.get("date") ?? "");
  const ahead = theirs - Date.now();
  if (Number.isFinite(ahead)) aheadMs = Math.abs(ahead) < 2_000 ? 0 : ahead;
}

"""Makes the orders of the demo, with every form of due time and target.

Some are rejected, taken back, moved or recur, and some fail at their consumer and are retried.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from math import gcd
from typing import Any, Final, NamedTuple

LONGEST_DELAY_MS: Final = 10_000
MAX_DELAY: Final = "1h"
MAX_DELAY_MS: Final = 3_600_000
FAILING: Final = 2
"""Number of orders that must end in the rejected topic."""

REGRETTED: Final = 4
"""Number of records that :func:`regretted` yields."""

CHANGING: Final = 3
"""Number of records that :func:`changing` yields."""

TIMES: Final = 3
"""Number of occurrences of the recurring order."""

APPENDED: Final = 1 + TIMES - 1
"""Number of records that the router itself writes: the moved order, and every occurrence but the first."""

FIRST_WAIT_MS: Final = 1_000
FACTOR: Final = 2
ATTEMPTS: Final = 3
"""Number of attempts of an order that fails; the last one comes after 7 s."""

MAX_WAIT_MS: Final = 60_000

RETRIED: Final = 2
"""Number of records that :func:`retried` yields."""

SENT_BACK: Final = 1 + ATTEMPTS
"""Number of records that the consumer of these orders sends back: one order once, the other one after each attempt."""

_FRUIT: Final = ("apples", "pears", "plums", "figs", "quinces", "medlars", "cherries")
_ABROAD: Final = timezone(timedelta(hours=2))
_WAYS: Final = 6

Header = tuple[str, bytes | None]


class Topics(NamedTuple):
    """Names of the topics of one demo; orders are sent to the first and may arrive in the others."""

    delay: str
    orders: str
    billing: str
    rejected: str

    @classmethod
    def of(cls, prefix: str) -> "Topics":
        """Return the names with a prefix, which may be empty."""
        delay = f"{prefix}orders.delay"
        return cls(delay, f"{prefix}orders", f"{prefix}billing", f"{delay}.rejected")

    @property
    def receipts(self) -> str:
        """Name of the topic with the outcome of each control."""
        return f"{self.delay}.receipts"

    @property
    def retry(self) -> str:
        """Name of the delay topic that counts attempts."""
        return f"{self.orders}.retry"

    @property
    def dead(self) -> str:
        """Name of the topic of orders without an attempt left."""
        return f"{self.orders}.dlq"

    def section(self, max_delay: str) -> dict[str, Any]:
        """Return the section of the delay topic in the configuration of its router."""
        return {
            "name": self.delay,
            "default_target": self.orders,
            "allowed_targets": [self.orders, self.billing],
            "max_delay": max_delay,
            "recurring": True,
        }

    def retry_section(self) -> dict[str, Any]:
        """Return the section of the delay topic that counts attempts."""
        waits = {"first": f"{FIRST_WAIT_MS}ms", "factor": FACTOR, "max": f"{MAX_WAIT_MS}ms"}
        retry = {**waits, "attempts": ATTEMPTS, "dead_letter": self.dead}
        return {"name": self.retry, "default_target": self.orders, "retry": retry}


class DemoOrder(NamedTuple):
    """A record to be sent.

    `ways` are its control headers as they are shown. `delay_ms` counts from its timestamp and `due_ms` is an instant:
    one of them is None; both are None for an order that must be rejected and for a record that only cancels or moves.
    The order arrives `times` times. Its consumer fails with it `fails` times, the first time before it is sent.
    """

    name: str
    key: bytes
    value: bytes
    headers: Sequence[Header]
    targets: tuple[str, ...]
    delay_ms: int | None
    due_ms: int | None
    times: int = 1
    fails: int = 0

    @property
    def deliver_id(self) -> str:
        """Id of the order; empty if it has none."""
        return (dict(self.headers).get("deliver-id") or b"").decode()

    @property
    def ways(self) -> str:
        """Control headers of the order in one line, or how it fails."""
        if self.fails:
            return f"to be retried: its consumer fails {'twice' if self.fails <= ATTEMPTS else 'always'}"
        shown = (f"{name} {(raw or b'').decode()}" for name, raw in self.headers if name.startswith("deliver-"))
        return ", ".join(shown)


def orders(count: int, topics: Topics, now_ms: int) -> Iterator[DemoOrder]:
    """Yield `count` orders with scattered due times within LONGEST_DELAY_MS of `now_ms`, then the FAILING ones."""
    stride = next(step for step in range(count // 2 + 1, 2 * count + 2) if gcd(step, count) == 1)
    for number in range(count):
        # The delays are evenly spread, and their order is unrelated to the order of sending.
        delay_ms = (number * stride % count) * LONGEST_DELAY_MS // max(count - 1, 1)
        yield _order(number, delay_ms, topics, now_ms)
    too_far = b"%d" % (MAX_DELAY_MS * 25)
    yield _make(count, [("deliver-after", too_far)], (), None, None)
    yield _make(count + 1, [("deliver-at", b"tomorrow at noon")], (), None, None)


def regretted(first: int, topics: Topics, now_ms: int) -> Iterator[DemoOrder]:
    """Yield an order and its cancellation, and an order and its replacement; only the replacement arrives.

    The replacement is due after the router was killed, so that a former router has taken back the replaced order.
    """
    due_ms = now_ms + LONGEST_DELAY_MS
    far: Header = ("deliver-at", b"%d" % due_ms)
    sooner_ms = due_ms - LONGEST_DELAY_MS // 5
    sooner: Header = ("deliver-at", b"%d" % sooner_ms)
    gift: Header = ("deliver-id", b"gift")
    made = (
        _make(first, [("deliver-id", b"mistake"), far], (topics.orders,), None, due_ms),
        _make(first + 1, [("deliver-cancel", b"mistake")], (), None, None),
        _make(first + 2, [gift, far], (topics.orders,), None, due_ms),
        _make(first + 3, [gift, ("deliver-replace", b"true"), sooner], (topics.orders,), None, sooner_ms),
    )
    # A control applies to its own partition, which follows from the key.
    yield from (order._replace(key=made[0].key) for order in made)


def changing(first: int, topics: Topics, now_ms: int) -> Iterator[DemoOrder]:
    """Yield an order, a move of it to an earlier time, and a recurring order, which is due also after the kill."""
    due_ms = now_ms + LONGEST_DELAY_MS
    step_ms = LONGEST_DELAY_MS // 5
    far: Header = ("deliver-at", b"%d" % due_ms)
    later = _make(first, [("deliver-id", b"visit"), far], (topics.orders,), None, due_ms)
    to: Header = ("deliver-after", b"%d" % (3 * step_ms))
    yield later
    yield _make(first + 1, [("deliver-move", b"visit"), to], (), None, None)._replace(key=later.key)
    begins_ms = now_ms + step_ms
    recurs: list[Header] = [("deliver-every", b"%d" % step_ms), ("deliver-times", b"%d" % TIMES)]
    at: Header = ("deliver-at", b"%d" % begins_ms)
    yield _make(first + 2, [*recurs, at], (topics.orders,), None, begins_ms)._replace(times=TIMES)


def retried(first: int, topics: Topics) -> Iterator[DemoOrder]:
    """Yield an order that its consumer handles in the second attempt, and an order that its consumer never handles."""
    for number, fails, target in ((first, 2, topics.orders), (first + 1, ATTEMPTS + 1, topics.dead)):
        yield _make(number, [], (target,), FIRST_WAIT_MS, None)._replace(fails=fails)


def _order(number: int, delay_ms: int, topics: Topics, now_ms: int) -> DemoOrder:
    due_ms = now_ms + delay_ms
    at: Header = ("deliver-at", b"%d" % due_ms)
    after: Header = ("deliver-after", b"%d" % delay_ms)
    to_orders: Header = ("deliver-to", topics.orders.encode())
    to_billing: Header = ("deliver-to", topics.billing.encode())
    match number % _WAYS:
        case 0:
            return _make(number, [at], (topics.orders,), None, due_ms)
        case 1:
            instant = _rfc3339(due_ms, UTC if number % 4 == 1 else _ABROAD)
            return _make(number, [("deliver-at", instant)], (topics.orders,), None, due_ms)
        case 2:
            return _make(number, [after], (topics.orders,), delay_ms, None)
        case 3:
            duration = f"PT{delay_ms // 1000}.{delay_ms % 1000:03}S".encode()
            return _make(number, [("deliver-after", duration)], (topics.orders,), delay_ms, None)
        case 4:
            return _make(number, [at, to_orders, to_billing], (topics.orders, topics.billing), None, due_ms)
        case _:
            return _make(number, [after, to_billing], (topics.billing,), delay_ms, None)


def _rfc3339(at_ms: int, zone: timezone) -> bytes:
    instant = datetime.fromtimestamp(at_ms // 1000, zone).replace(microsecond=at_ms % 1000 * 1000)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()


def _make(
    number: int, control: Sequence[Header], targets: tuple[str, ...], delay_ms: int | None, due_ms: int | None
) -> DemoOrder:
    content = {"order": number + 1, "item": _FRUIT[number % len(_FRUIT)], "pieces": number % 9 + 1}
    headers = [("content-type", b"application/json"), *control, ("note", None if number % 3 else b"")]
    key = f"customer-{number % 5}".encode()
    name = f"order {number + 1}"
    return DemoOrder(name, key, json.dumps(content).encode(), headers, targets, delay_ms, due_ms)

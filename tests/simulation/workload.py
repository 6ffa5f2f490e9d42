"""What producers send, and the rules an operator may think of."""

import random
from datetime import UTC, datetime, timedelta

from index.rules import Rules
from tests.simulation.world import DelayLog, Produced

DEFAULT_TARGET = "out"
TARGETS = ("a", "b")
LONGEST_DELAY_MS = 3_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def some_rules(rng: random.Random) -> Rules:
    """Rules that differ in what decides a record when it is indexed, and in what is asked again at release."""
    return Rules(
        topic="d",
        default_target=DEFAULT_TARGET,
        allowed_targets=tuple(target for target in TARGETS if rng.random() < 0.7),
        max_delay_ms=rng.choice([0, 40, 120, LONGEST_DELAY_MS]),
    )


def append_some(rng: random.Random, now_ms: int, log: DelayLog) -> None:
    """Append a few records and gaps; some share a due time to the millisecond."""
    same_due_us = now_ms * 1_000 + rng.randint(-50_000, 150_000)
    for _ in range(rng.randint(1, 6)):
        if rng.random() < 0.15:
            log.end += rng.randint(1, 3)
        due_us = same_due_us if rng.random() < 0.3 else now_ms * 1_000 + _delay_us(rng)
        log.records.append(_record(rng, log.end, now_ms, due_us))
        log.end += 1


def _delay_us(rng: random.Random) -> int:
    longest_ms = LONGEST_DELAY_MS if rng.random() < 0.2 else 150
    return rng.randint(-50_000, longest_ms * 1_000)


def _record(rng: random.Random, offset: int, now_ms: int, due_us: int) -> Produced:
    timestamp_ms = now_ms + rng.randint(-5, 5)
    due_us, header, legible = _time_header(rng, timestamp_ms, due_us)
    target = rng.choice(TARGETS) if rng.random() < 0.4 else DEFAULT_TARGET
    # Null is not empty, order counts, and so do duplicates.
    headers = [("trace", rng.choice([b"x", b"", None])), *header, ("trace", rng.choice([b"y", None]))]
    if target != DEFAULT_TARGET:
        headers.append(("deliver-to", target.encode()))
    key, padding = rng.choice([None, b"", b"k"]), rng.randbytes(rng.randint(0, 4))
    return Produced(offset, headers, timestamp_ms, due_us, target, legible, key, padding)


def _time_header(
    rng: random.Random, timestamp_ms: int, due_us: int
) -> tuple[int, list[tuple[str, bytes | None]], bool]:
    """A due time in one of its notations, and what that notation can say of it."""
    ahead_us = max(0, due_us - timestamp_ms * 1_000)
    match rng.choice(["ms", "ms", "instant", "after ms", "after iso", "none", "broken"]):
        case "ms":
            return due_us // 1_000 * 1_000, [("deliver-at", b"%d" % (due_us // 1_000))], True
        case "instant":
            instant = (_EPOCH + timedelta(microseconds=due_us)).isoformat().encode()
            return due_us, [("deliver-at", instant)], True
        case "after ms":
            ahead_ms = ahead_us // 1_000
            return (timestamp_ms + ahead_ms) * 1_000, [("deliver-after", b"%d" % ahead_ms)], True
        case "after iso":
            seconds = b"PT%d.%06dS" % divmod(ahead_us, 1_000_000)
            return timestamp_ms * 1_000 + ahead_us, [("deliver-after", seconds)], True
        case "none":
            return 0, [], True
        case _:
            return 0, [("deliver-at", b"soon")], False

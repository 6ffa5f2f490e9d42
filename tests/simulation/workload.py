"""Generates the records that producers send, and rules that an operator may set."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from index.rules.rules import Retry, Rules, TargetRule
from tests.simulation.world import START_MS, DelayLog, Named, Produced, Series, Where

DEFAULT_TARGET = "out"
TARGETS = ("a", "b")
DEAD_LETTER = "dead"
RETRIES = (Retry(10, 2_000, 100, 500, 3, DEAD_LETTER), Retry(30, 1_500, 60, 0, 2, DEAD_LETTER))
LONGEST_DELAY_MS = 3_000
SHORTEST_PERIOD_MS = 10
MINUTE_MS = 60_000
AWAY_MS = 2 * MINUTE_MS
IDS = (b"a", b"b", b"\xff")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def some_rules(
    rng: random.Random,
    *,
    recurring: bool = False,
    delay_ms: int = 0,
    spread_ms: int = 0,
    of_target_ms: int | None = None,
    retry: Retry | None = None,
) -> Rules:
    """Return rules that vary in the decision at indexing and in the checks that are repeated at release.

    ``of_target_ms``: the spread of one target, or None for the spread of the topic.
    """
    return Rules(
        topic="d",
        default_target=DEFAULT_TARGET,
        allowed_targets=tuple(target for target in TARGETS if rng.random() < 0.7),
        max_delay_ms=rng.choice([0, 40, 120, LONGEST_DELAY_MS]),
        recurring=recurring,
        min_period_ms=SHORTEST_PERIOD_MS,
        delay_ms=delay_ms,
        spread_ms=spread_ms,
        target_rules=() if of_target_ms is None else (TargetRule(TARGETS[0], spread_ms=of_target_ms),),
        retry=retry,
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


def append_recurring(
    rng: random.Random, now_ms: int, log: DelayLog, ids: Sequence[bytes] = (), away: random.Random | None = None
) -> None:
    """Append a recurring schedule, or a forged occurrence that no router has written.

    A schedule has one of these ids, if there are any; some replace another schedule of the id. If ``away`` is given,
    series by cron were sent some minutes ago, while no router was there.
    """
    timestamp_ms = now_ms + rng.randint(-5, 5)
    plain = _record(rng, log.end, now_ms, now_ms * 1_000)
    headers: list[tuple[str, bytes | None]] = [each for each in plain.headers if not each[0].startswith("deliver-a")]
    meant, due_ms, legible = _series(rng, log.end, timestamp_ms)
    if meant.begins and away is not None:
        due_ms = START_MS - AWAY_MS
        timestamp_ms = due_ms - away.randint(0, 30)
        meant = meant._replace(period_ms=MINUTE_MS, times=3, until_ms=START_MS, takes_all=away.random() < 0.7)
    headers += _series_headers(rng, meant, due_ms, timestamp_ms)
    series: Series | None = meant
    if rng.random() < 0.15:
        signatures = [raw for each in log.records for name, raw in each.headers if name == "deliver-series" and raw]
        signature = rng.choice(signatures).rpartition(b" ")[2] if signatures else b"0" * 32
        headers.append(("deliver-series", b"%d %d %d %s" % (log.end, rng.randint(1, 3), now_ms, signature)))
        series, due_ms, legible = None, now_ms, False
    named = None
    if ids and series is not None:
        named = Named(rng.choice(ids), rng.choice(["", "", "", "replace"]))
        headers.append(("deliver-id", named.deliver_id))
        headers += [("deliver-replace", b"true")] if named.action else []
    log.records.append(
        replace(
            plain,
            headers=headers,
            timestamp_ms=timestamp_ms,
            due_us=due_ms * 1_000,
            legible=legible,
            series=series,
            named=named,
        )
    )
    log.end += 1


def append_named(rng: random.Random, now_ms: int, log: DelayLog, delays_ms: Sequence[int]) -> None:
    """Append some schedules with an id, and controls that cancel, replace or move such schedules.

    ``delays_ms``: delays that may hold for a schedule that names no time.
    """
    for _ in range(rng.randint(1, 3)):
        deliver_id = rng.choice(IDS)
        plain = _record(rng, log.end, now_ms, now_ms * 1_000 + _delay_us(rng))
        action = rng.choice(["", "", "", "cancel", "move", "replace"])
        headers: list[tuple[str, bytes | None]] = [("Deliver-Id", deliver_id)]
        legible, due_us = plain.legible, plain.due_us
        if action == "cancel":
            headers, legible, due_us = [("deliver-cancel", deliver_id)], True, 0
        elif action == "move":
            times = [each for each in plain.headers if each[0].startswith("deliver-a")]
            headers, legible = [*times, ("Deliver-Move", deliver_id)], plain.legible and bool(times)
        elif action == "replace":
            headers.append(("deliver-replace", b"true"))
        if_due_ms = _if_due_ms(rng, deliver_id, log, delays_ms) if action else None
        if if_due_ms is not None:
            headers.append(("deliver-if-due", b"%d" % if_due_ms))
        elif action and rng.random() < 0.1:
            headers.append(("deliver-if-due", b"soon"))
            legible = False
        is_schedule = action in ("", "replace")
        own = plain.headers if is_schedule else [each for each in plain.headers if each[0] == "trace"]
        named = Named(deliver_id, action, if_due_ms)
        log.records.append(replace(plain, headers=[*own, *headers], legible=legible, due_us=due_us, named=named))
        log.end += 1


def append_query(rng: random.Random, now_ms: int, log: DelayLog) -> None:
    """Append a control that cancels by query, or one that nobody can follow."""
    fields = rng.sample(["target", "due_from", "due_to", "id_prefix", "header"], rng.choice([1, 1, 2]))
    # Records that are held for their targets fell due long ago.
    start_ms = now_ms + rng.choice([-5_000, rng.randint(-60, 150)])
    end_ms = now_ms + rng.randint(151, 400)
    prefix, header = rng.choice(["a", "b"]), ("trace", rng.choice(["x", "y", ""]))
    meant = {
        "target": rng.choice([DEFAULT_TARGET, *TARGETS]),
        "due_from": start_ms,
        "due_to": end_ms,
        "id_prefix": prefix,
        "header": dict(zip(("name", "value"), header, strict=True)),
    }
    raw = json.dumps({name: meant[name] for name in fields}).encode()
    legible = rng.random() < 0.9
    where = Where(
        str(meant["target"]) if "target" in fields else None,
        start_ms if "due_from" in fields else None,
        end_ms if "due_to" in fields else None,
        prefix.encode() if "id_prefix" in fields else None,
        (header[0], header[1].encode()) if "header" in fields else None,
    )
    broken = rng.choice([b"{}", b'{"target": ""}', b'{"traget": "a"}', b"where"])
    headers: list[tuple[str, bytes | None]] = [("trace", b"x"), ("Deliver-Cancel-Where", raw if legible else broken)]
    named = Named(b"", "cancel-where")
    control = Produced(log.end, headers, now_ms, 0, DEFAULT_TARGET, legible, named=named, where=where)
    log.records.append(control)
    log.end += 1


def append_attempts(rng: random.Random, now_ms: int, log: DelayLog) -> None:
    """Append some records that consumers have sent back, and some whose count of attempts nobody can read."""
    for _ in range(rng.randint(1, 4)):
        plain = _record(rng, log.end, now_ms, now_ms * 1_000 + _delay_us(rng))
        if rng.random() < 0.6:
            headers = [each for each in plain.headers if not each[0].startswith("deliver-a")]
            plain = replace(plain, headers=headers, due_us=0, legible=True)
        made, most = rng.choice([0, 0, 1, 1, 2, 3, -1]), rng.choice([0, 0, 0, 1, 4])
        came_from = rng.choice(["", "", *TARGETS])
        own: list[tuple[str, bytes | None]] = []
        if made:
            own.append(("delay-attempt", b"%d" % made))
        if most:
            own.append(("deliver-attempts-max", b"%d" % most))
        if came_from:
            own.append(("Delay-Target", came_from.encode()))
        headers = [*own, *plain.headers]
        counted = replace(plain, headers=headers, attempts_made=made, attempts_most=most, came_from=came_from)
        log.records.append(counted)
        log.end += 1


def append_chain(rng: random.Random, now_ms: int, log: DelayLog) -> None:
    """Append a schedule and some moves of it, directly behind each other or with a record between two of them."""
    deliver_id, due_us = rng.choice(IDS), (now_ms + rng.randint(100, 1_000)) * 1_000
    headers: list[tuple[str, bytes | None]] = [("deliver-at", b"%d" % (due_us // 1_000)), ("deliver-id", deliver_id)]
    schedule = Produced(log.end, headers, now_ms, due_us, DEFAULT_TARGET, legible=True, named=Named(deliver_id))
    log.records.append(schedule)
    log.end += 1
    for _ in range(rng.randint(2, 4)):
        due_ms = now_ms + rng.randint(-20, 1_000)
        headers = [("deliver-at", b"%d" % due_ms), ("deliver-move", deliver_id)]
        moves = replace(schedule, offset=log.end, headers=headers, due_us=due_ms * 1_000)
        log.records.append(replace(moves, named=Named(deliver_id, "move")))
        log.end += 1
        for _ in range(rng.choice([0, 1, 1, 6])):
            log.records.append(_record(rng, log.end, now_ms, now_ms * 1_000 + rng.choice([-3_000_000, 10_000])))
            log.end += 1


def append_moved_while_away(rng: random.Random, log: DelayLog) -> None:
    """Append a series and a move of it that were sent, and fell due, while no router was there."""
    sent_ms = START_MS - rng.randint(200, 400)
    first_ms, deliver_id = sent_ms + rng.choice([-50, 10, 100]), rng.choice(IDS)
    takes_all = rng.random() < 0.7
    meant = Series(log.end, 1, 25, rng.choice([3, 30]), 1 << 50, takes_all=takes_all)
    headers = [*_series_headers(rng, meant, first_ms, sent_ms), ("deliver-id", deliver_id)]
    schedule = Produced(log.end, headers, sent_ms, first_ms * 1_000, DEFAULT_TARGET, legible=True, series=meant)
    log.records.append(replace(schedule, named=Named(deliver_id)))
    log.end += 1
    moved_ms = sent_ms + rng.randint(0, 150)
    due_ms = moved_ms + rng.choice([-100, 10, 60])
    headers = [("deliver-at", b"%d" % due_ms), ("deliver-move", deliver_id)]
    moves = replace(schedule, offset=log.end, headers=headers, timestamp_ms=moved_ms, due_us=due_ms * 1_000)
    log.records.append(replace(moves, series=None, named=Named(deliver_id, "move")))
    log.end += 1


def _if_due_ms(rng: random.Random, deliver_id: bytes, log: DelayLog, delays_ms: Sequence[int]) -> int | None:
    """Return the due time of a recent schedule of this id, or None for a control without that condition."""
    recent = [each for each in log.records[-60:] if each.named and each.named[:2] == (deliver_id, "")]
    if not recent or rng.random() >= 0.3:
        return None
    record = rng.choice(recent)
    if not record.due_us and any(delays_ms):
        return record.timestamp_ms + rng.choice(delays_ms)
    return -(-record.due_us // 1_000)


def _series(rng: random.Random, offset: int, timestamp_ms: int) -> tuple[Series, int, bool]:
    """Return the series that is meant, its first due time, and whether that due time is possible."""
    if rng.random() < 0.2:
        # By cron: a run is shorter than a minute, and begins at a full minute.
        return Series(offset, 1, 0, 1, 1 << 50, takes_all=False, begins=True), START_MS, True
    period_ms, times = rng.choice([SHORTEST_PERIOD_MS, 25, 100]), rng.choice([1, 2, 4])
    due_ms = timestamp_ms + (rng.randint(-60, 60) if rng.random() < 0.5 else period_ms)
    until_ms = timestamp_ms + rng.choice([30, 200]) if rng.random() < 0.3 else 1 << 50
    series = Series(offset, 1, period_ms, times, until_ms, takes_all=rng.random() < 0.4)
    return series, due_ms, due_ms <= until_ms


def _series_headers(
    rng: random.Random, series: Series, due_ms: int, timestamp_ms: int
) -> list[tuple[str, bytes | None]]:
    headers: list[tuple[str, bytes | None]] = [("deliver-times", b"%d" % series.times)]
    if series.begins:
        at = b"%d" % (due_ms - rng.randint(0, 1_000))
        headers += [("deliver-cron", b"* * * * *"), ("deliver-timezone", b"Europe/Berlin"), ("deliver-at", at)]
        if series.times == 1:
            return headers
        missed = b"all" if series.takes_all else b"one"
        return [*headers, ("deliver-until", b"%d" % series.until_ms), ("deliver-missed", missed)]
    headers.append(("deliver-every", b"%d" % series.period_ms))
    if due_ms != timestamp_ms + series.period_ms:
        headers.append(("deliver-at", b"%d" % due_ms))
    if series.until_ms < 1 << 50:
        headers.append(("Deliver-Until", b"%d" % series.until_ms))
    if series.takes_all or rng.random() < 0.5:
        headers.append(("deliver-missed", b"all" if series.takes_all else b"one"))
    return headers


def _delay_us(rng: random.Random) -> int:
    longest_ms = LONGEST_DELAY_MS if rng.random() < 0.2 else 150
    return rng.randint(-50_000, longest_ms * 1_000)


def _record(rng: random.Random, offset: int, now_ms: int, due_us: int) -> Produced:
    timestamp_ms = now_ms + rng.randint(-5, 5)
    due_us, header, legible = _time_header(rng, timestamp_ms, due_us)
    target = rng.choice(TARGETS) if rng.random() < 0.4 else DEFAULT_TARGET
    # Null differs from empty, order counts, and duplicates count.
    headers = [("trace", rng.choice([b"x", b"", None])), *header, ("trace", rng.choice([b"y", None]))]
    if target != DEFAULT_TARGET:
        headers.append(("deliver-to", target.encode()))
    key, padding = rng.choice([None, b"", b"k"]), rng.randbytes(rng.randint(0, 4))
    return Produced(offset, headers, timestamp_ms, due_us, target, legible, key, padding)


def _time_header(
    rng: random.Random, timestamp_ms: int, due_us: int
) -> tuple[int, list[tuple[str, bytes | None]], bool]:
    """Return a due time with the precision of one of its notations, the header for it, and whether it is legible."""
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

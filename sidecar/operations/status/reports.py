"""Reports of routers about their partitions: the form in the status topic, and the view of a group from all of them.

A record of the status topic has the key ``group/instance/part`` and a JSON value::

    {"version": 1, "group": "delay-router", "instance": "router-0", "kernel": "native", "partitions": [
     {"topic": "orders.delay", "partition": 0, "state": "active", "pending": 17, ..., "by_due": [0, 2, ...],
      "spread": {"1": 2, ...}, "by_target": {"orders": 17}}], "vitals": {"version": "0.2.0", "host": "one", ...}}

``spread`` is ``by_due`` with more ranges; empty ranges, which are most of them as a rule, are left out. ``attempts`` is
there where attempts are counted.

A report of many partitions has several parts, since the size of a record is limited; each part can be understood
without the others. The timestamp of the broker tells the age of a report. The offset tells which of two reports is
newer, since the topic has one partition.

Two routers may report one partition: the old owner may not know yet that it has lost the partition, or it has gone and
left its last report. The newest report of a router that serves the partition wins; where none serves it, the newest of
a router that is about to.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from index.buckets.target_counts import OTHERS
from index.errors import FormatError
from index.partition.survey import SPREAD_BOUNDS_MS
from index.pending.progress import Position
from index.protocol.schedule import ATTEMPT_LABELS
from sidecar.engine.ownership.attempts import AttemptCounts
from sidecar.engine.ownership.status import PartitionState, PartitionStatus
from sidecar.engine.ports import Place
from sidecar.lateness import LATENESS_BOUNDS_MS

VERSION: Final = 1
PARTITIONS_A_PART: Final = 200
"""Partitions in one part. Each takes about 2 kB at most, so a part is below the default size limit of brokers."""

STALE_MS: Final = 30_000
"""Age above which a report does not count. A router reports every 10 s at least; after three times that it is gone."""

SILENT_MS: Final = 3_000
"""Silence after which a router is gone if others report all its partitions: it would report the loss within 1 s."""

MAX_REPORT_BYTES: Final = 4 << 20
_MAX_WHY: Final = 500
_NOT_REPORTED: Final = frozenset(
    {"watermark", "by_target", "held_by_target", "hidden_s", "in_doubt", "spread", "lateness", "lateness_ever"}
    | {"masked", "attempts"}
)
_PLAIN: Final = tuple(each.name for each in fields(PartitionStatus) if each.name not in _NOT_REPORTED)
_NUMBERS: Final = tuple(name for name in _PLAIN if name not in {"topic", "state", "why", "by_due"})
_KEY: Final = re.compile(r"(?P<group>.+)/(?P<instance>[^/]+)/[0-9]+", re.DOTALL)


class Vitals(NamedTuple):
    """The process of a router: its version, host and start, the cores that it uses, and its resident memory."""

    version: str
    host: str
    since_ms: int | None
    cpu_cores: float | None
    memory_bytes: int | None

    def plain(self) -> dict[str, Any]:
        """Return every field as a JSON value."""
        return dict(zip(self._fields, self, strict=True))


class RouterReport(NamedTuple):
    """One part of a router's report; ``kernel`` and ``vitals`` are empty where the router is too old to report them."""

    instance: str
    kernel: str
    statuses: list[PartitionStatus]
    vitals: Vitals | None = None


class Reported(NamedTuple):
    """A partition as a router reported it; for the answering router's own partitions ``offset`` is above all others."""

    status: PartitionStatus
    instance: str
    at_ms: int
    offset: int


def report_key(group: str, instance: str, part: int) -> bytes:
    """Return the key of one part of a router's report."""
    return f"{group}/{instance}/{part}".encode()


def encode_report(group: str, instance: str, kernel: str, statuses: Iterable[PartitionStatus]) -> list[bytes]:
    """Return the values of a report, one for each part; at least one, since holding no partition is news, too."""
    plain = [_plain(status) for status in sorted(statuses, key=lambda each: (each.topic, each.partition))]
    starts = range(0, max(len(plain), 1), PARTITIONS_A_PART)
    head = {"version": VERSION, "group": group, "instance": instance, "kernel": kernel}
    parts = [{**head, "partitions": plain[start : start + PARTITIONS_A_PART]} for start in starts]
    return [json.dumps(part, separators=(",", ":")).encode() for part in parts]


def with_vitals(part: bytes, vitals: Vitals) -> bytes:
    """Return a part of a report with vitals, which differ each time, while the rest may be the same as before."""
    return part[:-1] + b',"vitals":' + json.dumps(vitals.plain(), separators=(",", ":")).encode() + b"}"


def decode_report(key: bytes | None, value: bytes, group: str) -> RouterReport | None:
    """Return a part of a report, None for a part of another group; raise FormatError when it cannot be understood."""
    match = _KEY.fullmatch((key or b"").decode("utf-8", "replace"))
    if match is None or len(value) > MAX_REPORT_BYTES:
        raise FormatError(f"key {key!r} is none of a report, or {len(value)} bytes are too many")
    if match["group"] != group:
        return None
    try:
        plain = json.loads(value)
        if plain["version"] != VERSION:
            raise FormatError(f"version {plain['version']!r} is not known here (known: {VERSION})")
        return RouterReport(
            match["instance"],
            str(plain.get("kernel", "")),
            [_status(each) for each in plain["partitions"]],
            _vitals(plain.get("vitals")),
        )
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise FormatError(f"not readable as a report: {error!r}") from None


def _plain(status: PartitionStatus) -> dict[str, Any]:
    plain = {name: getattr(status, name) for name in _PLAIN}
    plain["why"] = status.why[:_MAX_WHY]
    spread = {place: count for place, count in enumerate(status.spread) if count}
    plain |= {"watermark": status.watermark, "by_target": dict(status.by_target), "spread": spread}
    plain |= {"lateness": status.lateness, "lateness_ever": status.lateness_ever}
    return plain if status.attempts is None else plain | {"attempts": status.attempts.plain()}


def _status(plain: Mapping[str, Any]) -> PartitionStatus:
    watermark = plain["watermark"]
    known: dict[str, Any] = {
        name: None if plain[name] is None else int(plain[name]) for name in _NUMBERS if name in plain
    }
    # A newer router may know more states.
    state = PartitionState(plain["state"]) if plain["state"] in set(PartitionState) else PartitionState.WAITING
    return PartitionStatus(
        topic=str(plain["topic"]),
        state=state,
        why=str(plain["why"]),
        by_due=tuple(int(count) for count in plain["by_due"]),
        spread=_spread(plain.get("spread", {})),
        lateness=_lateness(plain.get("lateness", ())),
        lateness_ever=_lateness(plain.get("lateness_ever", ())),
        attempts=_attempts(plain.get("attempts")),
        **known,
        watermark=None if watermark is None else Position(int(watermark[0]), int(watermark[1])),
        by_target=tuple((str(target), int(count)) for target, count in plain["by_target"].items()),
    )


def _vitals(plain: Mapping[str, Any] | None) -> Vitals | None:
    if plain is None:
        return None
    since_ms, cores, memory = (plain.get(name) for name in ("since_ms", "cpu_cores", "memory_bytes"))
    return Vitals(
        str(plain.get("version", "")),
        str(plain.get("host", "")),
        None if since_ms is None else int(since_ms),
        None if cores is None else float(cores),
        None if memory is None else int(memory),
    )


def _spread(plain: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the counts of all ranges; empty for a router that reports other ranges, or none."""
    counts = {int(place): int(count) for place, count in plain.items()}
    if not counts or not 0 <= min(counts) <= max(counts) <= len(SPREAD_BOUNDS_MS):
        return ()
    return tuple(counts.get(place, 0) for place in range(len(SPREAD_BOUNDS_MS) + 1))


def _lateness(plain: Iterable[Any]) -> tuple[int, ...]:
    """Return the counts; empty for a router that has other bounds, or none."""
    counts = tuple(int(count) for count in plain)
    return counts if len(counts) == len(LATENESS_BOUNDS_MS) + 1 else ()


def _attempts(plain: Mapping[str, Any] | None) -> AttemptCounts | None:
    """Return the counts; None for a router that counts by other labels, or not at all."""
    if plain is None:
        return None
    released, last_minute = (tuple(map(int, plain[name])) for name in ("released", "last_minute"))
    numbers = len(ATTEMPT_LABELS) + 1
    if len(released) != numbers or len(last_minute) not in (0, numbers):
        return None
    exhausted = tuple((int(offset), int(at_ms)) for offset, at_ms in plain["exhausted"])
    return AttemptCounts(int(plain["since_ms"]), released, last_minute, exhausted)


@dataclass(slots=True)
class _Part:
    report: RouterReport
    at_ms: int
    offset: int


class GroupReports:
    """The last report of every router of a group; not safe to use from several threads."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._parts: dict[bytes, _Part] = {}

    def add(self, key: bytes | None, value: bytes | None, at_ms: int, offset: int) -> RouterReport | None:
        """Take in a record of the status topic; return it where it is a part of a report of the group.

        Raise FormatError, with nothing changed, when it cannot be understood.
        """
        if value is None:
            self._parts.pop(key or b"", None)
            return None
        found = decode_report(key, value, self._group)
        if found is not None:
            self._parts[key or b""] = _Part(found, at_ms, offset)
        return found

    def forget(self, now_ms: int) -> None:
        """Drop the parts that are too old to count, except those with the last report of a partition."""
        last = {each.offset for each in self.last_told().values()}
        self._parts = {
            key: part for key, part in self._parts.items() if now_ms - part.at_ms <= STALE_MS or part.offset in last
        }

    def last_told(self) -> dict[Place, Reported]:
        """Return the last report of each partition, however old it is."""
        last: dict[Place, Reported] = {}
        for part in sorted(self._parts.values(), key=lambda each: each.offset):
            for status in part.report.statuses:
                last[status.topic, status.partition] = Reported(status, part.report.instance, part.at_ms, part.offset)
        return last

    def reported(self, now_ms: int) -> Iterator[Reported]:
        """Yield every partition of every report that is not too old."""
        for part in self._parts.values():
            if now_ms - part.at_ms <= STALE_MS:
                for status in part.report.statuses:
                    yield Reported(status, part.report.instance, part.at_ms, part.offset)

    def vitals(self) -> dict[str, Vitals]:
        """Return the last vitals that each router has reported, by its name."""
        told = sorted(self._parts.values(), key=lambda each: each.offset)
        return {each.report.instance: each.report.vitals for each in told if each.report.vitals is not None}

    def kernels(self, now_ms: int) -> dict[str, str]:
        """Return the kernel of each router that has reported lately and is not known to be gone."""
        last = self.last_told()
        running = (part for part in self._parts.values() if now_ms - part.at_ms <= STALE_MS)
        return {
            part.report.instance: part.report.kernel
            for part in running
            if not part.report.statuses or not _is_gone(part, last, now_ms)
        }


def _is_gone(part: _Part, last: Mapping[Place, Reported], now_ms: int) -> bool:
    """Say whether a router has stopped each partition of this part, or has been silent since others have each."""
    is_silent = now_ms - part.at_ms > SILENT_MS
    return all(
        each.state is PartitionState.STOPPED
        or (is_silent and last[each.topic, each.partition].instance != part.report.instance)
        for each in part.report.statuses
    )


def best(reported: Iterable[Reported]) -> dict[Place, Reported]:
    """Return the report that counts for each partition; none for a partition that all its reports call stopped."""
    chosen: dict[Place, Reported] = {}
    for each in reported:
        if each.status.state is PartitionState.STOPPED:
            continue
        place = each.status.topic, each.status.partition
        if place not in chosen or _rank(each) > _rank(chosen[place]):
            chosen[place] = each
    return chosen


def _rank(reported: Reported) -> tuple[bool, int]:
    return reported.status.ready, reported.offset


def targets_of(status: PartitionStatus) -> tuple[dict[str, int], int]:
    """Return the pending records by target, and the number of those whose target is not named."""
    named = dict(status.by_target)
    others = named.pop(OTHERS, 0)
    return named, others


def recent_lateness(statuses: Iterable[PartitionStatus]) -> list[int]:
    """Return the sums of the lateness counts over the partitions that report them."""
    return [sum(column) for column in zip(*(each.lateness for each in statuses if each.lateness), strict=True)]

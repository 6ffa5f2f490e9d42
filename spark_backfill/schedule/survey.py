"""The survey of a table of schedules, counted before anything is written; it needs neither Spark nor Kafka.

Every task surveys its rows, and the driver merges the surveys. Their size depends on the distinct targets and reasons,
not on the size of the table.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from index.protocol.schedule import Reason
from spark_backfill.schedule.row import Decision, InputRow

SAMPLES: Final = 5
"""Rows shown of each reason."""

_SHOWN: Final = 60
_HALF: Final = 4


class Route(NamedTuple):
    """The destination of rows: topics, and the partition in them; -1: by key."""

    targets: tuple[str, ...]
    partition: int


@dataclass(slots=True)
class Fingerprint:
    """A fingerprint of the rows of one delay partition, in any order: their number, and two sums over their digests."""

    rows: int = 0
    one: int = 0
    two: int = 0

    def add(self, digest: bytes) -> None:
        """Take in a row."""
        self.rows += 1
        self.one += int.from_bytes(digest[:_HALF], "big")
        self.two += int.from_bytes(digest[_HALF : 2 * _HALF], "big")

    def join(self, other: "Fingerprint") -> None:
        """Take in other rows of the partition."""
        self.rows += other.rows
        self.one += other.one
        self.two += other.two

    def text(self) -> str:
        """Return the fingerprint as it is kept beside the progress of a job."""
        return f"{self.rows}.{self.one:x}.{self.two:x}"


def rows_in(text: str) -> int:
    """Return the number of rows of a fingerprint's text."""
    return int(text.partition(".")[0])


@dataclass(slots=True)
class RowSurvey:
    """Counts of rows: by delay partition; by reason when invalid, by route and past due when valid."""

    partitions: dict[int, Fingerprint] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[str]] = field(default_factory=dict)
    routes: Counter[Route] = field(default_factory=Counter)
    past_routes: Counter[Route] = field(default_factory=Counter)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(each.rows for each in self.partitions.values())

    @property
    def invalid(self) -> int:
        """Number of rows that cannot be written."""
        return sum(self.reasons.values())

    @property
    def valid(self) -> int:
        """Number of rows that can be written, including the ones past due."""
        return sum(self.routes.values())

    @property
    def past(self) -> int:
        """Number of valid rows whose due time has passed."""
        return sum(self.past_routes.values())

    def add(self, row: InputRow, decision: Decision) -> None:
        """Count a row."""
        self.partitions.setdefault(decision.partition, Fingerprint()).add(decision.digest)
        if decision.reason:
            self._sample(decision.reason, f"{shown(row)}: {decision.message}")
            self.reasons[decision.reason] += 1
            return
        route = Route(decision.targets, decision.target_partition)
        self.routes[route] += 1
        if decision.past:
            self.past_routes[route] += 1

    def join(self, other: "RowSurvey") -> None:
        """Add the counts of another task."""
        for partition, fingerprint in other.partitions.items():
            self.partitions.setdefault(partition, Fingerprint()).join(fingerprint)
        self.reasons += other.reasons
        self.routes += other.routes
        self.past_routes += other.past_routes
        for reason, lines in other.samples.items():
            for line in lines:
                self._sample(reason, line)

    def refuse(self, refusals: Mapping[Route, str]) -> None:
        """Count the rows of these routes as invalid, because their targets cannot be written to; with the reason."""
        for route, message in refusals.items():
            count = self.routes.pop(route, 0)
            self.past_routes.pop(route, None)
            if count:
                self.reasons[Reason.TARGET_UNKNOWN] += count
                self._sample(Reason.TARGET_UNKNOWN, f"{count:,} rows: {message}")

    def to_json(self) -> str:
        """Encode the survey for the way to the driver."""
        plain = {
            "partitions": [[p, each.rows, each.one, each.two] for p, each in self.partitions.items()],
            "reasons": self.reasons,
            "samples": self.samples,
            "routes": [[*route, count, self.past_routes[route]] for route, count in self.routes.items()],
        }
        return json.dumps(plain)

    @classmethod
    def from_json(cls, text: str) -> "RowSurvey":
        """Read a survey from the output of ``to_json``."""
        plain = json.loads(text)
        survey = cls(
            partitions={p: Fingerprint(rows, one, two) for p, rows, one, two in plain["partitions"]},
            reasons=Counter(plain["reasons"]),
            samples=plain["samples"],
        )
        for targets, partition, count, past in plain["routes"]:
            route = Route(tuple(targets), partition)
            survey.routes[route] = count
            if past:
                survey.past_routes[route] = past
        return survey

    def _sample(self, reason: str, line: str) -> None:
        lines = self.samples.setdefault(reason, [])
        if len(lines) < SAMPLES:
            lines.append(line)


def merged(surveys: Iterable[RowSurvey]) -> RowSurvey:
    """Merge the surveys of all tasks."""
    result = RowSurvey()
    for survey in surveys:
        result.join(survey)
    return result


def shown(row: InputRow) -> str:
    """Describe a row in a line, without its value, which may be private."""
    parts = [f"due {_cut(row.due)}", f"target {_cut(row.target)}", f"key {_cut(row.key)}"]
    return ", ".join([f"id {_cut(row.row_id)}", *parts] if row.row_id is not None else parts)


def _cut(value: str | bytes | None) -> str:
    if value is None:
        return "null"
    text = repr(value[:_SHOWN])
    return text if len(value) <= _SHOWN else f"{text}..."

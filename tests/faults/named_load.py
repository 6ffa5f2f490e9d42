"""Writes schedules with ids, series and controls at a steady rate, and checks the meaning of their receipts."""

import json
from collections import defaultdict
from collections.abc import Iterable
from random import Random
from typing import Any, Final

from index.protocol.control_headers import CANCEL, MOVE
from index.protocol.headers import SERIES
from sidecar.dev.audit import AuditedRecord
from tests.integration.scenario import Header, Load, Stage, header

A_SECOND: Final = 100
NAMES: Final = 40
TIMES: Final = 60
PERIOD_MS: Final = 200
FURTHEST_MS: Final = 12_000
RECORDS_BETWEEN_SERIES: Final = 50

SLACK_MS: Final = 3_000
"""A receipt and a release of one transaction lie less than this apart; a control misses only later records."""

RECURS: Final[list[Header]] = [
    ("deliver-every", b"%dms" % PERIOD_MS),
    ("deliver-times", b"%d" % TIMES),
    ("deliver-missed", b"all"),
]
RECURRING: Final[dict[str, Any]] = {"recurring": True, "min_period": "100ms"}
"""Settings of a delay topic for this load."""


class NamedLoad(Load):
    """Schedules with ids, controls, records without either, and sometimes a series.

    Ids are few, so that most controls find a pending schedule. Controls cancel only every other series. Further
    partitions only get records without ids.
    """

    def __init__(self, stage: Stage, delay: str, rng: Random, partitions: int = 1) -> None:
        super().__init__(stage, [delay], rng, partitions=partitions, a_second=A_SECOND, delays_ms=(0, FURTHEST_MS))

    def _write(self, number: int) -> None:
        rng = self._rng
        name = b"id-%d" % rng.randrange(NAMES)
        after: Header = ("deliver-after", b"%d" % rng.randint(*self._delays_ms))
        if number % RECORDS_BETWEEN_SERIES == 1:
            self._produce(number, ("deliver-id", b"series-%d" % number), *RECURS)
            return
        match rng.randrange(8):
            case 0 | 1:
                super()._write(number)
            case 2:
                self._produce(number, (CANCEL, name))
            case 3:
                self._produce(number, (MOVE, name), after)
            case 4:
                self._produce(number, ("deliver-id", name), ("deliver-replace", b"true"), after)
            case 5 if number > RECORDS_BETWEEN_SERIES:
                # A short load with cancels of each series would show none.
                begun = rng.randrange(1, number, 2 * RECORDS_BETWEEN_SERIES)
                self._produce(number, (CANCEL, b"series-%d" % begun))
            case _:
                self._produce(number, ("deliver-id", name), after)

    def _produce(self, number: int, *headers: Header) -> None:
        self._producer.produce(self._topics[0], b"%d" % number, b"k", 0, headers=[*headers])


def check_receipts(stage: Stage, delay: str, out: str) -> None:
    """Assert that no record has left that a control should have found, and that series neither skip nor double."""
    released, receipts = stage.records(out), stage.records(f"{delay}.receipts")
    left_ms = {header(each, "delay-source"): each.timestamp_ms for each in released}
    names: dict[bytes | None, list[AuditedRecord]] = defaultdict(list)
    for each in stage.records(delay):
        names[dict(each.headers).get("deliver-id")].append(each)
    missed = [
        f"{receipt.key!r} at {header(receipt, 'delay-source')!r} spared {schedule.offset}"
        for receipt in receipts
        for schedule in names[receipt.key]
        if _is_about(receipt, schedule)
        and left_ms.get(f"{delay}/0/{schedule.offset}".encode(), 0) > receipt.timestamp_ms + SLACK_MS
    ]
    assert not missed, missed
    cancelled = {receipt.key for receipt in receipts if json.loads(receipt.value or b"")["cancelled"]}
    series = _occurrences(released)
    assert len(series) > 1, "no series has begun: nothing was shown of them"
    for name, numbers in series.items():
        assert numbers == list(range(1, len(numbers) + 1)), f"{name!r} has left as {numbers}"
        assert len(numbers) == TIMES or name in cancelled, f"{name!r} ended at {len(numbers)} and was not cancelled"


def _is_about(receipt: AuditedRecord, schedule: AuditedRecord) -> bool:
    """Say whether a schedule, or the beginning of its series, lies in front of the control."""
    control = int((header(receipt, "delay-source") or b"").rpartition(b"/")[2])
    series = dict(schedule.headers).get(SERIES)
    begun = schedule.offset if series is None else int(series.split(b" ")[0])
    return begun < control


def _occurrences(released: Iterable[AuditedRecord]) -> dict[bytes, list[int]]:
    """Return the occurrence numbers of each series, by its id, in the order of the target topic."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for each in released:
        headers = dict(each.headers)
        if number := headers.get("delay-occurrence"):
            found[headers["delay-id"] or b""].append(int(number))
    return found

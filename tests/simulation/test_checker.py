"""Tests of the checker: it names a broken guarantee in a history, and accepts a correct history."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from index.pending.progress import Position, Progress
from index.protocol.record import Record
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, encode_history, encode_progress
from tests.simulation.checker import Checker, Violation
from tests.simulation.host import TOPIC_ID
from tests.simulation.world import REJECTED, START_MS, Left, Produced, Transaction

RULES = Rules("d", default_target="out", allowed_targets=("a",), max_delay_ms=1_000)
RIGHT = Produced(3, [("h", None)], START_MS, (START_MS + 100) * 1_000, "out", legible=True, key=None, padding=b"x")
RIGHT_RECORD = Record(None, b"3/x", [("h", None)], START_MS)
BY_RULES = encode_history(RuleHistory.beginning(0, RULES))
TOO_LONG = Produced(4, [], START_MS, (START_MS + 1_001) * 1_000, "out", legible=True)


def _leaves(topic: str, offset: int = 3, at_ms: int = 2_000, progress: Progress | None = None) -> Transaction:
    state = [] if progress is None else [(PROGRESS_KEY, encode_progress(progress, TOPIC_ID))]
    return Transaction(START_MS + at_ms, [Left(offset, topic)], [(RULES_KEY, BY_RULES), *state])


def _written(record: Record) -> Transaction:
    return Transaction(START_MS + 2_000, [Left(3, "out", record)], [])


def _after(cursor: int, watermark: int, sealed_to: int) -> Progress:
    return Progress(cursor, Position(watermark, 3), sealed_to)


@pytest.mark.parametrize(
    ("history", "broken"),
    [
        ([_leaves("out"), _leaves("out")], "3 left twice, to out and to out"),
        ([_leaves("out"), _leaves(REJECTED)], "3 left twice"),
        ([_leaves("a")], "3 went to a, not out"),
        ([_leaves(REJECTED)], "3 rejected, but right by all rules there were"),
        ([_leaves("out", offset=4)], "4 released, but wrong by all rules there were"),
        ([_leaves("out", at_ms=99)], "3 released 1000 us early"),
        ([_leaves("out", progress=_after(5, 100, 6))], "S beyond C"),
        ([_leaves("out", progress=_after(5, 100, 5)), _leaves(REJECTED, 4, progress=_after(4, 100, 4))], "C moved"),
        ([_leaves("out", progress=_after(5, 100, 5)), _leaves(REJECTED, 4, progress=_after(5, 99, 5))], "W moved"),
        ([_leaves("out", progress=_after(5, 100, 5)), _leaves(REJECTED, 4, progress=_after(5, 100, 4))], "S moved"),
        ([_leaves("out")], r"lost: \[4\]"),
        ([_written(RIGHT_RECORD._replace(value=b"3/y"))], "3 altered"),
        ([_written(RIGHT_RECORD._replace(key=b""))], "3 altered"),
        ([_written(RIGHT_RECORD._replace(headers=[("h", b"")]))], "3 altered"),
    ],
)
def test_the_checker_names_what_is_broken(history: Sequence[Transaction], broken: str) -> None:
    with pytest.raises(Violation, match=broken):
        _check([RIGHT, TOO_LONG], history)


def test_the_checker_accepts_what_is_right() -> None:
    history = [_leaves("out", at_ms=100, progress=_after(4, 100, 4)), _leaves(REJECTED, offset=4)]
    _check([RIGHT, TOO_LONG], history)
    history = [_written(RIGHT_RECORD), _leaves(REJECTED, offset=4)]
    _check([RIGHT, TOO_LONG], history)


def test_the_checker_sees_the_wrong_order() -> None:
    sooner = Produced(9, [], START_MS, (START_MS + 50) * 1_000, "out", legible=True)
    history = [Transaction(START_MS + 200, [Left(3, "out"), Left(9, "out")], [])]
    with pytest.raises(Violation, match="not in order"):
        _check([RIGHT, sooner], history)


@pytest.mark.parametrize(
    ("from_offset", "at_ms", "broken"),
    [(3, 499, "3 released 1000 us early"), (3, 500, ""), (4, 0, "")],
)
def test_the_checker_knows_by_which_rules_a_record_is_delayed(from_offset: int, at_ms: int, broken: str) -> None:
    untimed = Produced(3, [], START_MS, 0, "out", legible=True)
    delaying = replace(RULES, delay_ms=500)
    history = encode_history(RuleHistory.beginning(0, RULES).with_epoch(from_offset, delaying))
    leaves = Transaction(START_MS + at_ms, [Left(3, "out")], [(RULES_KEY, history)])
    checker = Checker([untimed], [RULES, delaying], [leaves])
    if broken:
        with pytest.raises(Violation, match=broken):
            checker.follow()
    else:
        checker.follow()


def _check(produced: Sequence[Produced], history: Sequence[Transaction]) -> None:
    checker = Checker(produced, [RULES], history)
    checker.follow()
    checker.nothing_missing()

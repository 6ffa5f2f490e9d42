"""Cancel and replace on the index, checked by an independent checker (tests.support.named_twin)."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from index.named.mask import Mask
from index.named.named import NamedSchedules
from index.partition.partition import PartitionIndex
from index.pending.pending import Entry
from index.pending.progress import Position, Progress
from tests.support.named_twin import NamedTwin, Row

MOST_SEEDS = 500


@pytest.mark.parametrize("seed", range(60))
def test_a_schedule_is_released_or_in_one_receipt(seed: int) -> None:
    NamedTwin(random.Random(seed)).play(200)


def test_the_play_does_everything() -> None:
    done: Counter[str] = Counter()
    for seed in range(20):
        done += NamedTwin(random.Random(seed)).play(200)
    expected = {"cancelled", "replaced", "not-pending", "changed", "replayed", "sealed", "merged", "removed", "thawed"}
    expected |= {"cancelled in buckets", "cancelled before they were sealed"}
    assert expected <= (+done).keys()


class _Forgetful(Mask):
    def changes(self):  # type: ignore[no-untyped-def]
        return iter(())


class _ForgetsBuckets(Mask):
    def forget(self, _ranges: Sequence[range], needed_from: int) -> None:
        super().forget([], needed_from)


class _ForgetsUnsealed(Mask):
    def forget(self, ranges: Sequence[range], _needed_from: int) -> None:
        super().forget(ranges, 1 << 40)


class _Ignored(Mask):
    def without(self, run: Sequence[Entry[Row]]) -> Sequence[Entry[Row]]:  # type: ignore[override]
        return run


class _LetsGoAtOnce(PartitionIndex[Row, Row]):
    def control(self, *arguments, **options):  # type: ignore[no-untyped-def]
        receipt, added = super().control(*arguments, **options)
        if receipt is not None:
            self._pending.cancel(receipt.cancelled)
        return receipt, added


class _SparesLate(PartitionIndex[Row, Row]):
    def is_pending(self, place: Position) -> bool:
        return place > self._committed.watermark


class _AlwaysPending(PartitionIndex[Row, Row]):
    def is_pending(self, _place: Position) -> bool:
        return True


class _CountsCancelled(PartitionIndex[Row, Row]):
    def _count_cancelled(self, progress: Progress, *_: object) -> Progress:
        return progress


class _NeverPassed(PartitionIndex[Row, Row]):
    def _count_cancelled(self, progress: Progress, _passed: object, *given: Any) -> Progress:
        return super()._count_cancelled(progress, [], *given)


class _NotSealed(PartitionIndex[Row, Row]):
    def _count_cancelled(self, progress: Progress, passed: Any, receipts: Any, _installs: object) -> Progress:
        return super()._count_cancelled(progress, passed, receipts, None)


class _PassesDoomed(NamedSchedules):
    def cursor_before_doomed(self, cursor: int, _late: Iterable[Entry[Row]]) -> int:  # type: ignore[override]
        return cursor


class _KeepsNames(NamedSchedules):
    def confirm(self) -> list[Position]:
        names, self.names = self.names, type(self.names)()
        cancelled = super().confirm()
        self.names = names
        return cancelled


class _AllLeave(NamedSchedules):
    def leave(self, _cursor: int):  # type: ignore[no-untyped-def]
        return super().leave(1 << 40)


WRONG = {
    "the mask is not written": ("Mask", _Forgetful),
    "bits go while a bucket holds their records": ("Mask", _ForgetsBuckets),
    "bits go while [S, C) is read again": ("Mask", _ForgetsUnsealed),
    "the mask is not looked at": ("Mask", _Ignored),
    "what a receipt cancels is let go of before the receipt is committed": ("PartitionIndex", _LetsGoAtOnce),
    "late records are spared": ("PartitionIndex", _SparesLate),
    "what has left is cancelled": ("PartitionIndex", _AlwaysPending),
    "what was cancelled is told as pending": ("PartitionIndex", _CountsCancelled),
    "what W has passed is taken for cancelled and pending": ("PartitionIndex", _NeverPassed),
    "what is cancelled while it is sealed is forgotten": ("PartitionIndex", _NotSealed),
    "C passes a late record whose receipt stays": ("NamedSchedules", _PassesDoomed),
    "what was cancelled keeps its name": ("NamedSchedules", _KeepsNames),
    "receipts leave that C has not passed": ("NamedSchedules", _AllLeave),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_one_is_found(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, replacement = WRONG[wrong]
    if name == "Mask":
        monkeypatch.setattr("tests.support.named_twin.Mask", replacement)
    elif name == "PartitionIndex":
        monkeypatch.setattr(NamedTwin, "index_class", replacement)
    else:
        monkeypatch.setattr("index.partition.entering.NamedSchedules", replacement)
    for seed in range(MOST_SEEDS):
        try:
            NamedTwin(random.Random(seed)).play(200)
        except (AssertionError, ValueError):
            return
    pytest.fail(f"{MOST_SEEDS} seeds have not found it")

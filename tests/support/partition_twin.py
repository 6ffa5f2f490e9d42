"""A partition as a list of records, and the index beside it: every operation runs on both, and both are compared.

A record is done if and only if its offset is below C and (due, offset) is at or before W; a rejected one if and only if
its offset is below C. The contents of a batch follow from that alone, and the model computes them in the plainest way.
"""

import random
from dataclasses import dataclass, field

import pytest

from index.partition.batch import Batch
from index.partition.partition import PartitionIndex
from index.pending.progress import Position, Progress, start_of
from tests.support.runs import SMALL_RUNS

FIRST_OFFSET = 1_000
PAYLOAD_BYTES = 10


@dataclass(frozen=True)
class Row:
    """One offset of the log; ``due_ms`` None = a record that the rules reject."""

    offset: int
    due_ms: int | None

    def is_done(self, progress: Progress) -> bool:
        if self.due_ms is None:
            return self.offset < progress.cursor
        return self.offset < progress.cursor and (self.due_ms, self.offset) <= progress.watermark


@dataclass
class Model:
    """The naive model: every row indexed so far, and the progress that was committed."""

    log: list[Row]
    committed: Progress
    indexed_to: int

    def plan(self, now_ms: int, max_entries: int, max_bytes: int) -> tuple[list[int], list[int], list[int], Progress]:
        """Return the offsets of late, due and rejected records of the next batch, and its progress."""
        open_rows = [row for row in self.log if row.offset < self.indexed_to and not row.is_done(self.committed)]
        accepted = [(row.due_ms, row.offset) for row in open_rows if row.due_ms is not None]
        late = [place for place in accepted if place <= self.committed.watermark]
        waiting = sorted(place for place in accepted if place > self.committed.watermark)
        # A late record that is not due now holds back everything behind it.
        cursor = min([offset for due_ms, offset in late if due_ms > now_ms], default=self.indexed_to)
        most = min(max_entries, max(max_bytes // PAYLOAD_BYTES, 1))
        due = [place for place in waiting if place[0] <= now_ms][:most]
        still_open = [offset for _, offset in waiting[len(due) :]]
        progress = Progress(
            cursor,
            Position(*due[-1]) if due else self.committed.watermark,
            min([*still_open, cursor]),
            self.committed.number + 1,
        )
        return (
            [offset for _, offset in late if offset < cursor],
            [offset for _, offset in due],
            [row.offset for row in open_rows if row.due_ms is None and row.offset < cursor],
            progress,
        )


@dataclass
class Twin:
    """Does the same operations on the index and on the model, and keeps everything that was committed."""

    rng: random.Random
    log: list[Row] = field(default_factory=list)
    end: int = FIRST_OFFSET
    now_ms: int = 1_000
    left: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = Model(self.log, start_of(FIRST_OFFSET), FIRST_OFFSET)
        self.index = self.new_index()

    def new_index(self) -> PartitionIndex[Row, Row]:
        return PartitionIndex(self.model.committed, lambda _: PAYLOAD_BYTES, runs=SMALL_RUNS)

    def append(self) -> None:
        for _ in range(self.rng.randint(1, 5)):
            if self.rng.random() < 0.2:
                self.end += self.rng.randint(1, 3)  # a control record, or records of an aborted transaction
            rejected = self.rng.random() < 0.15
            self.log.append(Row(self.end, None if rejected else max(0, self.now_ms + self.rng.randint(-60, 60))))
            self.end += 1

    def read(self, most: int) -> None:
        ahead = [row for row in self.log if row.offset >= self.index.indexed_to]
        for row in ahead[:most]:
            done = row.is_done(self.model.committed)
            if row.due_ms is None:
                assert self.index.reject(row.offset, row) is not done
            else:
                entry = (row.due_ms, row.offset, row)
                assert list(self.index.add([entry])) == ([] if done else [entry])
        if len(ahead) <= most:
            self.index.advance(self.end)
        self.model.indexed_to = self.index.indexed_to
        self.check()

    def crash(self) -> None:
        """Discard the index, and index again from the committed progress."""
        self.index = self.new_index()
        self.model.indexed_to = self.index.indexed_to
        self.check()
        while self.index.replaying:
            with pytest.raises(ValueError, match="before the replay"):
                self.index.plan(self.now_ms, 1, 1)
            self.read(self.rng.randint(1, 4))

    def plan(self) -> Batch[Row, Row]:
        limits = self.rng.choice([0, 1, 3, 100]), self.rng.choice([1, PAYLOAD_BYTES * 2, 10_000])
        late, due, rejected, progress = self.model.plan(self.now_ms, *limits)
        batch = self.index.plan(self.now_ms, *limits)
        assert [offset for _, offset, _ in batch.late] == late
        assert [offset for _, offset, _ in batch.due] == due
        assert [offset for offset, _ in batch.rejected] == rejected
        assert batch.progress == progress
        assert len(batch) == len(late) + len(due) + len(rejected)
        assert all(due_ms <= self.now_ms for due_ms, _, _ in batch.late + batch.due), "early"
        self.check()
        return batch

    def confirm(self, batch: Batch[Row, Row]) -> None:
        self.left += [offset for _, offset, _ in batch.late + batch.due] + [offset for offset, _ in batch.rejected]
        assert len(self.left) == len(set(self.left)), "a record left twice"
        before, self.model.committed = self.model.committed, batch.progress
        assert batch.progress.watermark >= before.watermark
        assert batch.progress.cursor >= before.cursor
        assert before.sealed_to <= batch.progress.sealed_to <= batch.progress.cursor

    def release(self) -> None:
        batch = self.plan()
        match self.rng.choice(["confirmed", "confirmed", "lost response", "crash before"]):
            case "confirmed":
                self.confirm(batch)
                self.index.confirm()
                assert self.index.committed == batch.progress
            case "lost response":
                self.confirm(batch)
                self.crash()
            case _:
                self.crash()
        self.check()

    def check(self) -> None:
        self.index.check()
        assert self.index.replaying == (self.index.indexed_to < self.model.committed.cursor)

    def drain(self) -> None:
        self.read(10_000)
        self.now_ms += 1_000
        while self.index.owed or self.index.pending:
            batch = self.index.plan(self.now_ms, 5, 10_000)
            self.confirm(batch)
            self.index.confirm()
            self.check()
        assert sorted(self.left) == [row.offset for row in self.log], "a record never left"

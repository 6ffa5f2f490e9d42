"""PartitionIndex with adopted buckets, checked against the statement of test_buckets_model.py and one more sentence.

The record of an adopted bucket that is catching up is done if and only if (due, offset) is at or before the watermark
of that bucket. A bucket may be staged for any range. It may be adopted at any time while C lies in the range, or never.
Records that its rules reject are entries due at once.
"""

import random
from collections import Counter, defaultdict
from functools import cache

import pytest

from index.buckets.bucket import Manifest
from index.buckets.bucket_rules import cut
from index.partition.adopting import SHARE, Adoption, adopted
from index.partition.batch import Batch, Installs
from index.pending.progress import Position, Progress
from index.protocol.schedule import AT_ONCE
from tests.support.bucket_twin import TwinWithBuckets
from tests.support.partition_twin import PAYLOAD_BYTES, Row


class TwinThatAdopts(TwinWithBuckets):
    """Stages buckets for ranges around C, and adopts them when nothing is left to be sealed."""

    def __post_init__(self) -> None:
        self.staged: list[Manifest] = []
        self.bucket_of: dict[int, int] = {}
        super().__post_init__()

    def place_of(self, row: Row) -> Position:
        return Position(AT_ONCE if row.due_ms is None else row.due_ms, row.offset)

    def is_done(self, row: Row, progress: Progress) -> bool:
        """Say whether a record is done, by the statement of this module."""
        if row.offset not in self.bucket_of:
            return row.is_done(progress)
        return self.place_of(row) <= dict(progress.catching_up).get(self.bucket_of[row.offset], progress.watermark)

    def waiting(self, progress: Progress) -> dict[int | None, list[Position]]:
        """Return the positions that wait, in release order, by bucket that is behind; all others under None."""
        behind = dict(progress.catching_up)
        found: defaultdict[int | None, list[Position]] = defaultdict(list)
        for row in self.log:
            bucket_id = self.bucket_of.get(row.offset)
            if row.offset < self.index.indexed_to and not self.is_done(row, progress):
                if bucket_id in behind:
                    found[bucket_id].append(self.place_of(row))
                elif bucket_id is not None or (row.due_ms is not None and self.place_of(row) > progress.watermark):
                    found[None].append(self.place_of(row))
        return {key: sorted(places) for key, places in found.items()}

    def stage(self) -> None:
        """Build a bucket for a range that begins before or behind C, as a job does that does not know W."""
        near = self.index.indexed_to
        from_offset = max(self.log[0].offset if self.log else near, near + self.rng.randint(-12, 4))
        to_offset = min(self.end, from_offset + self.rng.randint(1, 30))
        if from_offset >= to_offset:
            return
        rows = [row for row in self.log if from_offset <= row.offset < to_offset]
        entries = sorted((*self.place_of(row), row) for row in rows)
        segments = cut([entries], self.rules, lambda _: PAYLOAD_BYTES)
        self.staged.append(Manifest(0, from_offset, to_offset, None, tuple(self.keep(each) for each in segments)))

    def adopt(self) -> None:
        """Pause reading, seal, and adopt the newest bucket that fits; two jobs may have built the same range."""
        for _ in range(40):
            if self.index.may_adopt and self.ready is None:
                break
            self.freeze()
            self.write()
            self.release()
        cursor = self.index.indexed_to
        fitting = [each for each in self.staged if each.from_offset <= cursor < each.to_offset]
        if not self.index.may_adopt or self.ready is not None or not fitting:
            return
        made = adopted(fitting[-1], self.index.committed.next_bucket, cursor)
        self.ready = Adoption(made)
        self.release()

    def plan(self) -> Batch[Row, Row]:
        entries, size = self.rng.choice([0, 1, 3, 100]), self.rng.choice([1, PAYLOAD_BYTES * 2, 10_000])
        before, installs = self.model.committed, self.ready
        waiting = self.waiting(before)
        late, _, rejected, unsealed = self.model.plan(self.now_ms, entries, size)
        late = [offset for offset in late if offset not in self.bucket_of]
        batch = self.index.plan(self.now_ms, entries, size, installs)
        progress = batch.progress
        assert [offset for _, offset, _ in batch.late[: len(late)]] == late
        assert [offset for offset, _ in batch.rejected] == [each for each in rejected if each not in self.bucket_of]
        taken = [Position(*each[:2]) for each in batch.due]
        caught_up = self.check_catching_up(batch, batch.late[len(late) :], waiting, -(-entries // SHARE))
        others = sorted([*waiting.get(None, []), *caught_up])
        assert taken == others[: len(taken)], "not the first ones of the others"
        assert not self.absent & {offset for _, offset in taken}
        assert progress.watermark == (taken[-1] if taken else before.watermark)
        cursor = installs.manifest.to_offset if isinstance(installs, Adoption) else unsealed.cursor
        assert progress.cursor == cursor
        assert progress.sealed_to == self._sealed_to(progress.watermark, cursor, installs)
        assert all(due_ms <= self.now_ms for due_ms, _, _ in batch.late + batch.due), "early"
        self.check()
        return batch

    def check_catching_up(
        self,
        batch: Batch[Row, Row],
        entries: list[tuple[int, int, Row]],
        waiting: dict[int | None, list[Position]],
        most: int,
    ) -> list[Position]:
        """Check the adopted buckets of a batch; return the remaining positions of the buckets that caught up."""
        progress, before = batch.progress, dict(self.model.committed.catching_up)
        places = [Position(*each[:2]) for each in entries]
        owners = {self.bucket_of[offset] for _, offset in places}
        assert len(owners) <= 1
        assert len(places) <= most
        for owner in owners:
            assert places == waiting[owner][: len(places)], "not the first ones of the bucket"
            assert places[-1] <= self.model.committed.watermark
        after, caught_up = dict(progress.catching_up), []
        if isinstance(batch.installs, Adoption):
            after.pop(batch.installs.manifest.bucket_id, None)
        for bucket_id, watermark in before.items():
            moved = places[-1] if bucket_id in owners else watermark
            assert after.pop(bucket_id, moved) == moved
            if bucket_id not in dict(progress.catching_up):
                self.done["caught up"] += 1
                left = [each for each in waiting.get(bucket_id, []) if each not in places]
                assert not left or left[0] > self.model.committed.watermark, "no longer behind with something left"
                caught_up += left
        assert not after, "one that had caught up is behind again"
        return caught_up

    def _sealed_to(self, watermark: Position, cursor: int, installs: Installs | None) -> int:
        return cursor if isinstance(installs, Adoption) else super()._sealed_to(watermark, cursor, installs)

    def confirm(self, batch: Batch[Row, Row]) -> None:
        super().confirm(batch)
        if not isinstance(batch.installs, Adoption):
            return
        manifest = batch.installs.manifest
        rows = [row.offset for row in self.log if manifest.from_offset <= row.offset < manifest.to_offset]
        self.bucket_of.update(dict.fromkeys(rows, manifest.bucket_id))
        self.sealed.update(rows)
        self.absent.update(rows)
        if manifest.segments:
            self.manifests[manifest.bucket_id] = manifest
        self.done["adopted"] += 1
        self.done["adopted behind"] += manifest.bucket_id in dict(batch.progress.catching_up)
        self.done["masked"] += (manifest.built_from or 0) < manifest.from_offset
        self.ready = None

    def release(self) -> None:
        super().release()
        self.model.indexed_to = self.index.indexed_to

    def load(self) -> None:
        buckets = [each for each in self.index.parts.buckets.values() if each.next_segment is not None]
        if not buckets:
            return
        bucket = self.rng.choice(buckets)
        number = bucket.next_segment or 0
        manifest, committed = bucket.manifest, self.index.committed
        segment = self.store[manifest.segments[number].record_offset]
        watermark = dict(committed.catching_up).get(manifest.bucket_id, committed.watermark)
        pending = {offset for _, offset, _ in self.stored(manifest, manifest.segments[number])}
        pending -= {offset for due_ms, offset, _ in segment if (due_ms, offset) <= watermark}
        dropped = self.index.parts.load(manifest.bucket_id, number, segment, committed.watermark)
        known = {offset for _, offset, _ in dropped}
        assert {offset for _, offset, _ in segment} - known == pending & self.absent
        self.absent -= pending
        self.done["loaded"] += 1

    def drain(self) -> None:
        super().drain()
        assert self.index.committed.catching_up == ()


@cache
def play(seed: int) -> Counter[str]:
    twin = TwinThatAdopts(random.Random(seed))
    operations = {
        twin.append: 6,
        twin.stage: 2,
        twin.adopt: 2,
        twin.freeze: 2,
        twin.write: 6,
        twin.release: 4,
        twin.load: 4,
        twin.merge: 2,
        twin.remove: 1,
        twin.fail: 0.2,
        twin.crash: 0.3,
    }
    return twin.play(operations, [1, 5])


@pytest.mark.parametrize("seed", range(50))
def test_random_operations_with_adopted_buckets(seed: int) -> None:
    print(f"seed {seed}")
    play(seed)


def test_every_operation_happens() -> None:
    done: Counter[str] = sum((play(seed) for seed in range(40)), Counter())
    expected = {"sealed", "loaded", "merged", "removed", "adopted", "adopted behind", "masked", "caught up"}
    assert all(done[each] > 20 for each in expected), done

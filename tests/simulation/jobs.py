"""Runs jobs that build buckets from the log and stage them, step by step, and shows an owner their results.

A job of the simulation shares with the job on Spark: ``decide`` of :mod:`spark_backfill.buckets.decisions`, ``hash_of``
of :mod:`index.named.names`, and of ``snapshots`` ``SegmentWriter``, ``encode_pages`` and the keys and values of what is
staged. It sorts by itself and cuts by :mod:`index.buckets.bucket_rules`: a job on Spark does both by columns of Arrow,
divided among tasks, for which a run of the simulation has too few records. Tests of that job compare the cuts.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count

from index.buckets.bucket import Placement
from index.buckets.bucket_rules import SealRules, cut
from index.errors import FormatError
from index.named.id_pages import IdPageRef, rows_in_order
from index.named.names import AnyPlaces, hash_of
from index.named.places import Places, Shifts, insert
from index.pending.progress import Position
from index.protocol.schedule import AT_ONCE
from index.rules.rules import Rules
from sidecar.engine.limits import Limits
from sidecar.engine.ownership.adopting import BackfillRecord
from snapshots.segments.id_pages import IdPageWriter, encode_pages
from snapshots.segments.segment import StoredEntry
from snapshots.segments.writing import SegmentWriter
from snapshots.state.staged import (
    STAGED_PREFIX,
    Intent,
    StagedBucket,
    decode_staged,
    encode_intent,
    encode_staged,
    intent_key,
    staged_key,
    staged_page_key,
    staged_segment_key,
)
from spark_backfill.buckets.decisions import decide
from tests.simulation.fetching import record_of
from tests.simulation.world import DelayLog, Store

NEVER_MS = 1 << 50
SEES_NEWS = 0.7
WRITES_IDS = 0.9
_attempts = count()


class Job:
    """Builds one bucket for [a, b), by the cursor and the rules that it knows; ``steps`` yields a note on each step."""

    def __init__(
        self,
        rng: random.Random,
        around: tuple[DelayLog, Store],
        cursor: int,
        rules: Rules,
        topic_id: str,
        limits: Limits,
    ) -> None:
        self._rng = rng
        self._log, self._store = log, _ = around
        self._rules = rules
        self._topic_id = topic_id
        self._limits = limits
        self._from = max(log.start, cursor + rng.choice([0, rng.randint(-15, 0), rng.randint(0, 4)]))
        self._to = min(log.end, self._from + rng.randint(3, 40))
        controls = [
            each.offset
            for each in log.records
            if self._from <= each.offset < self._to
            and (each.unreadable_to or any(rules.controls.makes_control(name) for name, _ in each.headers))
        ]
        # Only the owner knows which schedules the controls cancel, and a job reads no unreadable batch.
        self._to = min([self._to, *controls])
        self._name = rng.choice(["nightly", f"job{rng.getrandbits(40)}"])
        self._run = f"{next(_attempts)}.{self._name}"

    def steps(self) -> Iterator[str]:
        """Write an intent, then segments, then the staged bucket in place of the intent."""
        if self._from >= self._to:
            return
        span = f"[{self._from}, {self._to})"
        intent = Intent(self._run, self._store.snapshots_end, NEVER_MS)
        self._store.stage(intent_key(self._run), encode_intent(intent))
        yield f"job {self._name} intends {span}"
        entries, ids, shifts_ms = self._decided()
        # A random generator of its own, so that the rest of the run stays the same.
        writes_ids = random.Random(f"{span}, ids").random() < WRITES_IDS
        id_pages = self._write_ids(ids, shifts_ms) if writes_ids else None
        writer = SegmentWriter(0, self._from, self._to)
        for number, run in enumerate(cut([entries], _limits(self._rng), lambda _: 10)):
            placement = self._rng.choice(list(Placement))
            stored: list[StoredEntry] = [
                (due_ms, offset, record if placement is Placement.INLINE and due_ms != AT_ONCE else None)
                for due_ms, offset, record in run
            ]
            for encoded in writer.encode(placement, stored):
                key = staged_segment_key(self._name, self._from, number, next(_attempts))
                writer.written([encoded.ref], [self._store.append_segment(key, encoded.value)])
        yield f"job {self._name} has written {span}"
        manifest = replace(writer.manifest(), id_pages=id_pages)
        staged = StagedBucket(self._name, self._topic_id, self._rules, manifest, restores=False)
        self._store.stage(staged_key(self._name, self._from), encode_staged(staged))
        self._store.withdraw(intent_key(self._run))
        yield f"job {self._name} has staged {span}"

    def _write_ids(self, ids: Places, shifts_ms: Shifts) -> tuple[IdPageRef, ...] | None:
        """Write pages of ids in front of the segments, where the segments do not protect them from a trim."""
        writer = IdPageWriter(0, self._limits.max_pages)
        for number, page in enumerate(encode_pages(rows_in_order(ids, shifts_ms), len(ids), self._limits.page_rows)):
            key = staged_page_key(self._name, self._from, number, next(_attempts))
            writer.written([page], [self._store.append_segment(key, page.value)])
        return writer.refs()

    def _decided(self) -> tuple[list[StoredEntry], Places, Shifts]:
        """Return the entries in release order, and the places of each id with their shifts, as the tasks of a Spark job
        decide them.
        """
        sent = [each for each in self._log.records if self._from <= each.offset < self._to]
        records, offsets = [record_of(each) for each in sent], [each.offset for each in sent]
        headers, timestamps_ms = [each.headers for each in records], [each.timestamp_ms for each in records]
        dues_ms, _, named, shifts_ms = decide(headers, timestamps_ms, offsets, self._rules)
        ids: AnyPlaces = {}
        for number, deliver_id in named:
            insert(ids, hash_of(deliver_id), Position(dues_ms[number], offsets[number]))
        entries: list[StoredEntry] = list(zip(dues_ms, offsets, records, strict=True))
        return sorted(entries, key=lambda entry: entry[:2]), ids, {offsets[each]: shifts_ms[each] for each in shifts_ms}


class Watch:
    """An owner's view of the backfill topic, which may be out of date."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        self._store = store
        self._rng = rng
        self._seen: dict[bytes, BackfillRecord] = {}

    def __call__(self) -> Mapping[bytes, BackfillRecord]:
        staged = {key: each for key, each in self._store.backfill.items() if key.startswith(STAGED_PREFIX)}
        offsets = {key: offset for key, (offset, _) in staged.items()}
        news = offsets != {key: each.offset for key, each in self._seen.items()}
        if news and self._rng.random() < SEES_NEWS:
            self._seen = {key: BackfillRecord(offset, _decoded(key, value)) for key, (offset, value) in staged.items()}
        return self._seen


def _decoded(key: bytes, value: bytes) -> StagedBucket | FormatError:
    try:
        return decode_staged(key, value)
    except FormatError as error:
        return error


def _limits(rng: random.Random) -> SealRules:
    return SealRules(time_step_ms=rng.choice([20, 500]), segment_entries=rng.choice([1, 3, 10]))

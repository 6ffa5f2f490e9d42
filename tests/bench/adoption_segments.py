"""Writes segments of one staged bucket in a separate process: pointers of minimal size.

The due times follow from the offsets, so another process can write the delay topic at the same time. They fill a span
of time evenly, and neighbours in the log lie far apart.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from index.buckets.bucket import Placement, SegmentRef
from index.buckets.bucket_rules import SealRules, cut
from index.pending.progress import Position
from snapshots.segments.segment import StoredEntry
from snapshots.segments.writing import SegmentWriter, record_size
from snapshots.state.staged import staged_segment_key
from tests.bench import child, workload

STRIDE: Final = 2_654_435_761
"""A prime number above every span, so that each millisecond of a span is used."""

LIMITS: Final = SealRules(segment_entries=2_000, placement="pointer")
"""The defaults of the configuration, except for the placement."""

CHUNK: Final = 10_000


def due_ms(offset: int, first_ms: int, spread_ms: int) -> int:
    """Return the due time of the record at ``offset``, in [first_ms, first_ms + spread_ms)."""
    return first_ms + offset * STRIDE % spread_ms


def main() -> None:
    """Write the segments, and answer with the references for a manifest."""
    given: dict[str, Any] = child.arguments()
    refs = _written(**given)
    child.answer(refs=refs)


def refs_of(told: dict[str, Any]) -> tuple[SegmentRef, ...]:
    """Return the references in the answer in the form that a manifest takes."""
    return tuple(
        SegmentRef(Position(*first), Position(*last), entries, size_bytes, at, Placement(placement))
        for first, last, entries, size_bytes, at, placement, *_ in told["refs"]
    )


def _entries(first_ms: int, spread_ms: int, start: int, end: int) -> Iterator[list[StoredEntry]]:
    offsets = np.arange(start, end)
    dues_ms = first_ms + offsets * STRIDE % spread_ms
    order = np.lexsort((offsets, dues_ms))
    for at in range(0, len(order), CHUNK):
        chosen = order[at : at + CHUNK]
        yield [
            (due, offset, None) for due, offset in zip(dues_ms[chosen].tolist(), offsets[chosen].tolist(), strict=True)
        ]


def _written(
    bootstrap: str, topic: str, job: str, first_ms: int, spread_ms: int, start: int, end: int
) -> list[SegmentRef]:
    producer = Producer(workload.QUIET | {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    refs: list[SegmentRef] = []
    at: dict[int, int] = {}
    writer = SegmentWriter(0, start, end)

    def delivered(number: int, error: KafkaError | None, sent: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        at[number] = sent.offset() or 0

    for entries in cut(_entries(first_ms, spread_ms, start, end), LIMITS, record_size):
        for encoded in writer.encode(Placement.POINTER, entries):
            number = len(refs)
            refs.append(encoded.ref)
            producer.produce(
                topic,
                encoded.value,
                staged_segment_key(job, start, number, "bench"),
                0,
                on_delivery=partial(delivered, number),
            )
            producer.poll(0)
    workload.flush(producer)
    return [ref._replace(record_offset=at[number]) for number, ref in enumerate(refs)]


if __name__ == "__main__":
    main()

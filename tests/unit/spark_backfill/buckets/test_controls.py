"""The places of controls, and the stretches between them that a job takes: spark_backfill.buckets.controls."""

from random import Random

import pyarrow as pa

from index.protocol.headers import Headers
from index.rules.rules import Rules
from spark_backfill.buckets.controls import MOST_STRETCHES, Span, controls_among, stretches
from spark_backfill.source import OffsetRange

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
RULES = Rules("d", default_target="out")


def column(records: list[Headers | None]) -> pa.ListArray:
    """Return headers as the connector hands them over."""
    rows = [None if each is None else [{"key": name, "value": raw} for name, raw in each] for each in records]
    return pa.array(rows, HEADERS)


def claims_control(headers: Headers) -> bool:
    return any(RULES.controls.makes_control(name) for name, _ in headers)


def test_every_record_that_claims_to_be_a_control_is_found(rng: Random) -> None:
    known: list[Headers | None] = [
        None,
        [],
        [("deliver-at", b"1")],
        [("n", b"1"), ("deliver-cancel", b"a"), ("n", b"2")],
        [("Deliver-Replace", b"true"), ("deliver-id", b"a")],
        [("deliver-move", None)],
    ]
    for _ in range(200):
        records = rng.choices(known, k=rng.randrange(12))
        expected = [number for number, each in enumerate(records) if each and claims_control(each)]
        assert controls_among(column(records), RULES).tolist() == expected
        shifted = column([known[3], *records])[1:]
        assert controls_among(shifted, RULES).tolist() == expected


def test_stretches_are_all_that_is_long_enough_between_controls(rng: Random) -> None:
    for _ in range(500):
        ranges = [OffsetRange(0, 0, rng.randrange(1, 200)), OffsetRange(2, 50, 50 + rng.randrange(1, 200))]
        least = rng.randrange(1, 40)
        held = {(part, at) for part, start, end in ranges for at in rng.sample(range(start, end), min(end - start, 3))}
        controls = [Span(part, at, at) for part, at in held]
        found = stretches(ranges, controls, least)
        assert found == sorted(found)
        covered = {(part, at) for part, start, end in found for at in range(start, end)}
        assert not covered & held
        everything = {(part, at) for part, start, end in ranges for at in range(start, end)}
        # Offsets in no stretch form runs that are too short, between controls.
        run = 0
        for place in sorted(everything):
            is_next = place not in covered | held and run and (place[0], place[1] - 1) in everything
            run = run + 1 if is_next else int(place not in covered | held)
            assert run < least


def test_only_the_longest_of_too_many_stretches_are_taken() -> None:
    controls = [Span(0, at, at) for at in range(0, 10 * (MOST_STRETCHES + 50), 10)]
    end = controls[-1].last + 1_000
    found = stretches([OffsetRange(0, 0, end)], controls, 5)
    assert len(found) == MOST_STRETCHES
    assert OffsetRange(0, controls[-1].last + 1, end) in found

"""Held records: encoded and decoded with any content; incomplete ones are refused."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.errors import FormatError
from index.pending.progress import Position, Progress
from index.protocol.record import Record
from index.protocol.schedule import KEEP_KEY, Attempted, Schedule
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from snapshots.envelope import Kind, wrap
from snapshots.show import show
from snapshots.state.held import MAX_PART_BYTES, HeldEntry, decode_held, encode_held, held_key
from snapshots.state.state import PROGRESS_KEY, RULES_KEY, encode_history, encode_progress, fold_state
from tests.support.stored import forged, golden

_bytes = st.none() | st.binary(max_size=20)
_schedules = st.builds(
    Schedule,
    due_ms=st.integers(0, 2**63 - 1),
    targets=st.lists(st.sampled_from(["a", "b", "c.d"]), min_size=1, unique=True).map(tuple),
    partition=st.integers(-1, 2**31 - 1),
    key=_bytes | st.just(KEEP_KEY),
    deliver_id=_bytes,
    both_times=st.booleans(),
    expire_after_ms=st.integers(-1, 2**63 - 1),
)
_records = st.builds(
    Record,
    key=_bytes,
    value=_bytes,
    headers=st.lists(st.tuples(st.text(max_size=5), _bytes), max_size=4).map(tuple),
    timestamp_ms=st.integers(-1, 2**63 - 1),
)
_entries = st.builds(
    HeldEntry, offset=st.integers(0, 2**63 - 1), schedule=_schedules, record=_records, parts=st.just(1)
)

FORGERIES = 2000


def _of_json(head: bytes) -> bytes:
    return wrap(Kind.HELD, struct.pack(">II", 1, len(head)) + head)


SCHEDULE = Schedule(5, ("a",), -1, KEEP_KEY, None, both_times=False)
ENTRY = HeldEntry(7, SCHEDULE, Record(b"k", b"v", (("h", None),), 3))


GOLDEN = HeldEntry(
    4711,
    Schedule(1_800_000_000_000, ("orders", "audit"), 3, b"\x00k", b"id-7", both_times=True, expire_after_ms=60_000),
    Record(None, b'{"total": 3}', (("deliver-at", b"1800000000000"), ("\u00fcber", None), ("e", b"")), -1),
)


@pytest.mark.parametrize("name", ["held-v1.bin", "held-offset-v1.bin"])
def test_what_version_1_wrote_is_read(name: str) -> None:
    assert decode_held([(held_key(4711, 0), golden(name))]) == (GOLDEN,)


def test_what_is_written_is_version_1_with_the_offset() -> None:
    assert encode_held(GOLDEN) == [(held_key(4711, 0), golden("held-offset-v1.bin"))]


def test_how_much_later_it_was_to_leave_is_kept_where_it_was_spread() -> None:
    spread = GOLDEN._replace(schedule=GOLDEN.schedule._replace(due_ms=1_800_000_018_541, shift_ms=18_541))
    ((key, stored),) = encode_held(spread)
    assert decode_held([(key, stored)]) == (spread,)
    assert b'"shift_ms": 18541' in stored
    assert b"shift_ms" not in golden("held-v1.bin")


@pytest.mark.parametrize("attempt", [Attempted(3, jitter_ms=50), Attempted(8, exhausted=True)])
def test_the_count_of_its_attempts_is_kept_where_attempts_are_counted(attempt: Attempted) -> None:
    counted = GOLDEN._replace(schedule=GOLDEN.schedule._replace(attempt=attempt))
    ((key, stored),) = encode_held(counted)
    assert decode_held([(key, stored)]) == (counted,)
    assert b"attempt" not in encode_held(GOLDEN)[0][1]


def test_damage_under_a_right_checksum_is_refused_or_read(rng: random.Random) -> None:
    for _ in range(FORGERIES):
        value = forged(Kind.HELD, golden("held-v1.bin"), rng)
        try:
            (found,) = decode_held([(held_key(4711, 0), value)])
        except FormatError:
            continue
        assert found.offset == 4711


@given(entries=st.lists(_entries, max_size=5, unique_by=lambda entry: entry.offset))
def test_what_is_held_is_read_back_in_order_of_due_time(entries: list[HeldEntry]) -> None:
    stored = [part for entry in entries for part in encode_held(entry)]
    assert decode_held(reversed(stored)) == tuple(sorted(entries, key=lambda entry: (entry.due_ms, entry.offset)))


@pytest.mark.parametrize("size", [MAX_PART_BYTES - 400, MAX_PART_BYTES - 250, MAX_PART_BYTES, 3 * MAX_PART_BYTES])
def test_a_large_record_is_held_in_parts(size: int) -> None:
    for value_bytes in range(size, size + 200, 41):
        large = HeldEntry(7, SCHEDULE, Record(b"k", b"x" * value_bytes, (), 3))
        stored = encode_held(large)
        assert all(len(part) < 900_000 for _, part in stored)
        assert [key for key, _ in stored] == [held_key(7, number) for number in range(len(stored))]
        assert decode_held(stored) == (large._replace(parts=len(stored)),)


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        ([(held_key(7, 1), encode_held(ENTRY)[0][1])], "has parts .1. of 1"),
        ([(b"held/x/0", b"")], "not known here; upgrade the router"),
        ([(b"held/7", b"")], "not known here"),
        ([(b"held/%s/0" % (b"7" * 5_000), b"")], "not known here"),
        ([(held_key(7, 0), _of_json(b'{"own_key": "keep", "targets": [], "due_ms": Infinity}'))], "of offset 7"),
        ([(held_key(7, 0), _of_json(b"[" * 100_000))], "of offset 7"),
        ([(held_key(7, 0), _of_json(b'{"own_key": "keep", "due_ms": %s}' % (b"9" * 5_000)))], "of offset 7"),
        ([(held_key(8, 0), encode_held(ENTRY)[0][1])], "of offset 8 .* holds the record of offset 7"),
        ([(b"held/07/0", encode_held(ENTRY)[0][1])], "none that a router writes"),
        ([(held_key(7, 0), b"garbage")], "record 'held/7/0' of the state topic"),
        ([(held_key(7, 0), wrap(Kind.HELD, b""))], "held record of offset 7"),
        ([(held_key(7, 0), wrap(Kind.HELD, b"\0\0\0\1\0\0\0\2{}"))], "held record of offset 7"),
        ([(held_key(7, 0), wrap(Kind.SEGMENT, b""))], "not HELD"),
    ],
)
def test_what_is_not_whole_is_refused(stored: list[tuple[bytes, bytes]], why: str) -> None:
    with pytest.raises(FormatError, match=why):
        decode_held(stored)


def test_a_part_of_a_large_record_that_is_missing_is_noticed() -> None:
    stored = encode_held(HeldEntry(7, SCHEDULE, Record(b"k", b"x" * 2 * MAX_PART_BYTES, (), 3)))
    for missing in range(len(stored)):
        with pytest.raises(FormatError, match="held record of offset 7"):
            decode_held(stored[:missing] + stored[missing + 1 :])


def test_the_state_of_a_partition_has_them() -> None:
    progress = Progress(9, Position(5, 7), 9)
    state = [
        (PROGRESS_KEY, encode_progress(progress, "id")),
        (RULES_KEY, encode_history(RuleHistory.beginning(0, Rules("d", default_target="a")))),
        *encode_held(ENTRY),
    ]
    found = fold_state(state)
    assert found is not None
    assert found.held == (ENTRY,)
    gone = fold_state([*state, (held_key(7, 0), None)])
    assert gone is not None
    assert gone.held == ()
    with pytest.raises(FormatError, match="part of the state was lost"):
        fold_state(encode_held(ENTRY))


def test_one_is_shown_for_what_it_is() -> None:
    ((_, stored),) = encode_held(ENTRY)
    assert "waits for its target" in "\n".join(show(stored))

"""Segments: they are decoded as they were encoded; damaged ones are refused."""

import math
import random
import tracemalloc
from collections.abc import Callable

import pytest
from google.protobuf.internal import api_implementation
from pyroaring import BitMap64

from index.buckets.bucket import Placement
from index.errors import ConfigError, FormatError
from index.protocol.record import Record
from snapshots import libraries
from snapshots.envelope import Kind, unwrap, wrap
from snapshots.libraries import check_bitmap_library, check_protobuf_library
from snapshots.offsets import encode_offsets
from snapshots.proto import segment_pb2
from snapshots.segments.segment import MAX_ENTRIES, StoredEntry, decode_segment, encode_segment
from tests.support.stored import DUE_MS, INLINE_ENTRIES, POINTER_ENTRIES, flipped, forged, golden

INLINE, POINTER = Placement
GOLDEN = [
    pytest.param("segment-inline-v1.bin", INLINE, INLINE_ENTRIES, id="inline"),
    pytest.param("segment-pointer-v1.bin", POINTER, POINTER_ENTRIES, id="pointer"),
]
SEEDS = range(8)
RECORD = Record(b"k", b"v", [("h", b"x")], 5)
FORGERIES = 3000


@pytest.mark.parametrize(("name", "placement", "entries"), GOLDEN)
def test_what_version_1_wrote_is_read(name: str, placement: Placement, entries: list[StoredEntry]) -> None:
    assert decode_segment(golden(name)) == entries


@pytest.mark.parametrize(("name", "placement", "entries"), GOLDEN)
def test_what_is_written_is_version_1(name: str, placement: Placement, entries: list[StoredEntry]) -> None:
    assert encode_segment(placement, entries) == golden(name)


@pytest.mark.parametrize(("name", "placement", "entries"), GOLDEN)
def test_every_flipped_bit_is_found(name: str, placement: Placement, entries: list[StoredEntry]) -> None:
    stored = golden(name)
    for bit in range(len(stored) * 8):
        assert _is_refused(flipped(stored, bit)), f"bit {bit} flipped"


def _is_refused(stored: bytes) -> bool:
    try:
        decode_segment(stored)
    except FormatError:
        return True
    return False


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("segment-inline-v1-bit-flipped.bin", "checksum does not match"),
        ("segment-pointer-v1-bad-bitmap.bin", "bitmap of offsets: Invalid bitmap .* not strictly increasing"),
        ("segment-inline-v2-future.bin", r"version 2 is not known here \(known: 1\); upgrade the router"),
        ("segment-pointer-v2-future.bin", "version 2 is not known here"),
        ("manifest-v1.bin", r"holds kind 3, not SEGMENT \(4\)"),
    ],
)
def test_damaged_and_future_segments_are_refused(name: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        decode_segment(golden(name))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("placement", Placement)
def test_random_entries_come_back_as_they_were(placement: Placement, seed: int) -> None:
    print(f"seed {seed}")
    entries = _random_entries(random.Random(seed), with_records=placement is INLINE)
    assert decode_segment(encode_segment(placement, entries)) == entries


@pytest.mark.parametrize(
    "records",
    [
        [None],
        [None, None],
        [RECORD],
        [None, RECORD],
        [RECORD, None],
        [RECORD._replace(key=None)] * 3,
        [RECORD._replace(value=None), RECORD._replace(value=b"")],
        [RECORD._replace(headers=[])] * 2,
        [RECORD._replace(headers=[("a", None)] * 5 + [("a", b""), ("b", None)])],
        [RECORD._replace(timestamp_ms=ms) for ms in (-(2**63), 2**63 - 1, -(2**63), -1, 0)],
    ],
)
def test_null_is_not_empty_and_absent_is_neither(records: list[Record | None]) -> None:
    entries: list[StoredEntry] = [(7, offset, record) for offset, record in enumerate(records)]
    assert decode_segment(encode_segment(INLINE, entries)) == entries


def test_a_pointer_segment_leaves_records_out() -> None:
    assert decode_segment(encode_segment(POINTER, [(7, 3, RECORD)])) == [(7, 3, None)]


@pytest.mark.parametrize("placement", Placement)
def test_the_most_entries_and_one_more(placement: Placement) -> None:
    entries: list[StoredEntry] = [(due_ms, due_ms, None) for due_ms in range(MAX_ENTRIES + 1)]
    assert decode_segment(encode_segment(placement, entries[:-1])) == entries[:-1]
    with pytest.raises(FormatError, match="a segment has 1 to 65536 entries, not 65537"):
        encode_segment(placement, entries)


@pytest.mark.parametrize("placement", Placement)
@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "not 0"),
        ([(8, 1, None), (7, 2, None)], "not sorted by due time and offset"),
        ([(7, 2, None), (7, 1, None)], "not sorted"),
        ([(7, 1, None), (7, 1, None)], "two entries of one offset"),
        ([(7, 1, None), (8, 1, RECORD)], "two entries of one offset"),
        ([(-1, 1, None)], "due -1 to -1; 0 to"),
        ([(7, -1, None)], "offsets -1 to -1; 0 to"),
        ([(2**63, 1, None)], "due 9223372036854775808"),
        ([(7, 2**63, None)], "offsets 9223372036854775808"),
    ],
)
def test_what_could_not_be_read_is_not_written(placement: Placement, entries: list[StoredEntry], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        encode_segment(placement, entries)


def test_a_segment_that_fits_no_envelope_is_not_written() -> None:
    with pytest.raises(FormatError, match=r"SEGMENT body of \d+ bytes is over the cap"):
        encode_segment(INLINE, [(7, 1, RECORD._replace(value=bytes(1_048_576)))])


@pytest.mark.parametrize(
    ("name", "entries", "most_bytes"),
    [
        ("fixed delay, dense", [(DUE_MS + i // 20, i) for i in range(20_000)], 1.1),
        ("fixed delay, 1 in 288", [(DUE_MS + i, 288 * i) for i in range(20_000)], 4.1),
        ("scattered over an hour, 1 in 288", [(DUE_MS + i * 7919 % 3_600_000, 288 * i) for i in range(20_000)], 6.0),
    ],
)
def test_a_pointer_takes_few_bytes(name: str, entries: list[tuple[int, int]], most_bytes: float) -> None:
    stored = encode_segment(POINTER, sorted((due_ms, 10**10 + offset, None) for due_ms, offset in entries))
    assert len(stored) / len(entries) <= most_bytes


# Forged: the checksum is right, the content is not.

Forge = Callable[[segment_pb2.Segment], object]


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (lambda s: s.Clear(), "claims 0 entries"),
        (lambda s: s.__setattr__("count", 2**32 - 1), "claims 4294967295 entries"),
        (lambda s: s.__setattr__("count", 4), "3 due times, where 4 are declared"),
        (lambda s: s.ClearField("payload"), "neither inline nor pointer; upgrade"),
        (lambda s: s.inline.offset_deltas.append(1), "4 offsets, where 3 are declared"),
        (lambda s: s.inline.due_deltas.__setitem__(0, 2**64 - 1), "are due 18446744073709551615 to"),
        (lambda s: s.inline.due_deltas.__setitem__(2, 2**63), r"are due 100 to 9223372036854775\d+; 0 to"),
        (lambda s: s.inline.offset_deltas.__setitem__(0, -1), "offsets -1 to 1; 0 to"),
        (lambda s: s.inline.offset_deltas.__setitem__(1, 0), "two entries of one offset"),
        (lambda s: s.inline.offset_deltas.__setitem__(1, -2), "not sorted"),
        (lambda s: s.inline.record_runs.extend([2]), "3 timestamps, where 2 are declared"),
        (lambda s: s.inline.record_runs.extend([3, 2**32 - 1]), "3 records, where runs of 3 among 4294967298"),
        (lambda s: s.inline.record_runs.extend([2**32 - 1]), "claims 4294967295 records"),
        (lambda s: s.inline.timestamp_deltas.pop(), "2 timestamps, where 3 are declared"),
        (lambda s: s.inline.keys.present.pop(), "2 keys, where 3 are declared"),
        (lambda s: s.inline.values.runs.extend([1, 2]), "3 values, where runs of 1 among 3"),
        (lambda s: s.inline.values.runs.extend([3, 2**32 - 1]), "3 values, where runs of 3 among 4294967298"),
        (lambda s: s.inline.header_counts.append(0), "4 header counts, where 3 are declared"),
        (lambda s: s.inline.header_counts.__setitem__(0, 2**32 - 1), "3 header names, where 4294967297 are declared"),
        (lambda s: s.inline.header_indexes.__setitem__(2, 1), "named by index 1 of 1"),
        (lambda s: s.inline.header_values.present.append(b""), "4 header values, where 3 are declared"),
        (lambda s: s.inline.Clear(), "0 due times, where 3 are declared"),
    ],
)
def test_a_forged_inline_segment_is_refused(forge: Forge, message: str) -> None:
    entries: list[StoredEntry] = [(100, offset, RECORD) for offset in range(10, 13)]
    _expect_refusal(encode_segment(INLINE, entries), forge, message)


def _bitmap(offsets: list[int], added: bytes = b"") -> Forge:
    return lambda segment: segment.pointer.__setattr__("offsets", encode_offsets(offsets) + added)


def _stored_bitmap(stored: bytes) -> Forge:
    return lambda segment: segment.pointer.__setattr__("offsets", stored)


# 65,536 containers, each of them full: 2^32 members in some 650 kB.
_FULL_32 = b"".join(
    (
        bytes.fromhex("0100000000000000 00000000 3b30ffff"),
        b"\xff" * 8192,
        b"".join(key.to_bytes(2, "little") + b"\xff\xff" for key in range(65_536)),
        b"".join((8 + 8192 + 65_536 * 8 - 4 + 6 * key).to_bytes(4, "little") for key in range(65_536)),
        bytes.fromhex("0100 0000 ffff") * 65_536,
    )
)


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (lambda s: s.__setattr__("count", 2), "3 due times, where 2 are declared"),
        (lambda s: s.pointer.due_deltas.append(1), "4 due times, where 3 are declared"),
        (lambda s: s.pointer.due_deltas.__setitem__(1, -101), "are due -1 to"),
        (lambda s: s.pointer.due_deltas.__setitem__(0, 2**63 - 1), "are due 9223372036854775807 to 92233720368547758"),
        (_bitmap([1, 2]), "bitmap of 2 offsets, where 3 are declared"),
        (_bitmap([1, 2, 3, 4]), "bitmap of 4 offsets, where 3 are declared"),
        (_bitmap([1, 2, 2**63]), "bitmap holds 9223372036854775808, which is no offset"),
        (_bitmap([1, 2, 3], added=b"\0"), "read and written again, it differs"),
        (_stored_bitmap(b""), "bitmap of offsets: "),
        (_stored_bitmap(b"\xff" * 64), "bitmap of offsets: "),
        (_stored_bitmap(_FULL_32), "bitmap of 4294967296 offsets, where 3 are declared"),
    ],
)
def test_a_forged_pointer_segment_is_refused(forge: Forge, message: str) -> None:
    entries: list[StoredEntry] = [(100 + offset, offset, None) for offset in range(3)]
    _expect_refusal(encode_segment(POINTER, entries), forge, message)


def _expect_refusal(stored: bytes, forge: Forge, message: str) -> None:
    segment = segment_pb2.Segment.FromString(unwrap(Kind.SEGMENT, stored))
    forge(segment)
    value = wrap(Kind.SEGMENT, segment.SerializeToString())
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=message):
            decode_segment(value)
        assert tracemalloc.get_traced_memory()[1] < 16 * len(value) + 500_000, "expanded before it was checked"
    finally:
        tracemalloc.stop()


def test_a_body_that_is_no_protobuf_is_refused() -> None:
    with pytest.raises(FormatError, match="segment: "):
        decode_segment(wrap(Kind.SEGMENT, b"\xff"))


@pytest.mark.parametrize("placement", Placement)
def test_forged_bytes_give_sorted_entries_or_a_format_error(placement: Placement) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    originals = [
        encode_segment(placement, INLINE_ENTRIES),
        encode_segment(placement, _random_entries(rng, with_records=True)[:40]),
    ]
    refused = 0
    for _ in range(FORGERIES):
        value = forged(Kind.SEGMENT, rng.choice(originals), rng)
        try:
            entries = decode_segment(value)
        except FormatError:
            refused += 1
        else:
            _check_well_formed(entries)
    assert 0 < refused < FORGERIES, "nothing was damaged, or nothing got as far as the content"


def _check_well_formed(entries: list[StoredEntry]) -> None:
    positions = [(due_ms, offset) for due_ms, offset, _ in entries]
    assert 0 < len(positions) <= MAX_ENTRIES
    assert positions == sorted(positions)
    assert len({offset for _, offset in positions}) == len(positions)
    assert all(0 <= number < 2**63 for position in positions for number in position)
    for record in (record for _, _, record in entries if record is not None):
        assert type(record) is Record
        names = [name for name, _ in record.headers]
        payloads = [record.key, record.value, *(value for _, value in record.headers)]
        assert {type(name) for name in names} <= {str}
        assert {type(payload) for payload in payloads} <= {bytes, type(None)}
        assert -(2**63) <= record.timestamp_ms < 2**63


def test_the_bitmap_library_refuses_garbage() -> None:
    check_bitmap_library()


def test_a_bitmap_library_that_takes_garbage_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gullible(BitMap64):
        @classmethod
        def deserialize(cls, buff: bytes) -> "Gullible":
            assert isinstance(buff, bytes)
            return cls([5, 10])

    monkeypatch.setattr(libraries, "BitMap64", Gullible)
    with pytest.raises(ConfigError, match=r"for a bitmap; install pyroaring >= 1\.1"):
        check_bitmap_library()


def test_protobuf_is_the_compiled_one(monkeypatch: pytest.MonkeyPatch) -> None:
    check_protobuf_library()
    monkeypatch.setattr(api_implementation, "Type", lambda: "python")
    with pytest.raises(ConfigError, match="protobuf runs on its 'python' implementation; install a wheel"):
        check_protobuf_library()


def _random_entries(rng: random.Random, *, with_records: bool) -> list[StoredEntry]:
    count = rng.randint(1, 500)
    offset_span = int(count * math.exp(rng.uniform(0, 25)))
    due_span_ms = rng.choice((1, 50, 300_000, 2**40))
    base = rng.choice((0, 10**9, 2**62))
    offsets = rng.sample(range(base, base + offset_span), count)
    return sorted(
        (
            (
                rng.choice((0, DUE_MS)) + rng.randrange(due_span_ms),
                offset,
                _random_record(rng) if with_records else None,
            )
            for offset in offsets
        ),
        key=lambda entry: entry[:2],
    )


def _random_record(rng: random.Random) -> Record | None:
    if rng.random() < 0.1:
        return None
    headers = [
        (rng.choice(("", "a", "deliver-at", "名前")), _random_payload(rng)) for _ in range(rng.choice((0, 1, 2, 9)))
    ]
    return Record(_random_payload(rng), _random_payload(rng), headers, rng.choice((-1, DUE_MS + rng.randrange(10**6))))


def _random_payload(rng: random.Random) -> bytes | None:
    return rng.choice((None, b"", rng.randbytes(rng.randrange(30))))

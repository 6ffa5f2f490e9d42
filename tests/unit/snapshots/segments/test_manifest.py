"""Manifests: recovery trusts them, so a manifest that contradicts itself is neither written nor read."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from index.buckets.bucket import NO_MARKS, DueMarks, Manifest, Placement, SegmentRef
from index.buckets.due_marks import MOST_MARKS, marks_of, thinned
from index.errors import FormatError
from index.pending.progress import Position
from snapshots.envelope import Kind, unwrap, wrap
from snapshots.proto import state_pb2
from snapshots.segments import target_columns
from snapshots.segments.manifest import (
    MAX_SEGMENTS,
    decode_manifest,
    encode_manifest,
    manifest_key,
    parse_manifest,
    segment_key,
)
from snapshots.segments.segment import MAX_ENTRIES
from tests.support.stored import DUE_MS, MANIFEST, MARKED, flipped, forged, golden

KEY = manifest_key(42)
FIRST, SECOND, THIRD = MANIFEST.segments
MOST = 2**63 - 1


def test_what_version_1_wrote_is_read() -> None:
    assert decode_manifest(KEY, golden("manifest-v1.bin")) == MANIFEST
    assert parse_manifest(golden("manifest-v1.bin")) == MANIFEST


def test_what_is_written_is_version_1() -> None:
    assert encode_manifest(MANIFEST) == golden("manifest-v1.bin")


def test_keys_sort_like_their_numbers() -> None:
    assert manifest_key(42) == b"bucket/00000000000000000042"
    assert manifest_key(MOST) == b"bucket/09223372036854775807"
    assert segment_key(42, 7) == b"00000000000000000042/000007"
    assert segment_key(0, MAX_SEGMENTS - 1) == b"00000000000000000000/019999"


def test_every_flipped_bit_is_found() -> None:
    stored = golden("manifest-v1.bin")
    for bit in range(len(stored) * 8):
        with pytest.raises(FormatError):
            decode_manifest(KEY, flipped(stored, bit))


@pytest.mark.parametrize(
    ("key", "name", "message"),
    [
        (KEY, "manifest-v1-truncated.bin", "claims a body of 69 bytes and has 62"),
        (KEY, "manifest-dues-v1-fewer-than-entries.bin", "due times: segment 1 has 2 due times for every 512"),
        (KEY, "manifest-v2-future.bin", r"version 2 is not known here \(known: 1\); upgrade the router"),
        (KEY, "segment-inline-v1.bin", r"holds kind 4, not MANIFEST \(3\)"),
        (manifest_key(41), "manifest-v1.bin", "holds the manifest of bucket 42"),
        (b"bucket/42", "manifest-v1.bin", "holds the manifest of bucket 42"),
        (b"bucket/\xff", "manifest-v1.bin", "holds the manifest of bucket 42"),
    ],
)
def test_a_manifest_that_cannot_be_trusted_is_refused_by_name(key: bytes, name: str, message: str) -> None:
    with pytest.raises(FormatError, match=message) as raised:
        decode_manifest(key, golden(name))
    assert str(raised.value).startswith("record 'bucket/")
    assert str(raised.value).isascii()


@pytest.mark.parametrize("seed", range(8))
def test_a_random_manifest_comes_back_as_it_was(seed: int) -> None:
    print(f"seed {seed}")
    manifest = _random_manifest(random.Random(seed), segments=random.Random(seed).choice((1, 2, 300)))
    assert decode_manifest(manifest_key(manifest.bucket_id), encode_manifest(manifest)) == manifest


def test_an_adopted_bucket_comes_back_with_offsets_below_its_own() -> None:
    adopted = replace(MANIFEST, from_offset=9999, built_from=4000)
    assert decode_manifest(KEY, encode_manifest(adopted)) == adopted
    for built_from in (10_000, -1):
        with pytest.raises(FormatError, match=f"bucket from offset 9999 was built from {built_from} on"):
            encode_manifest(replace(adopted, built_from=built_from))
    with pytest.raises(FormatError, match=r"segment 0 has offset 4017, outside of \[4018, 10000\)"):
        encode_manifest(replace(adopted, built_from=4018))


COUNTED = replace(
    MANIFEST,
    segments=(
        FIRST._replace(targets=(("orders", 2000), ("bills", 48))),
        SECOND,
        THIRD._replace(targets=(("bills", 1), ("", 5))),
    ),
)


def test_counts_by_target_come_back_and_an_older_reader_passes_over_them() -> None:
    stored = encode_manifest(COUNTED)
    assert decode_manifest(KEY, stored) == COUNTED
    assert len(stored) - len(encode_manifest(MANIFEST)) < 50
    body = state_pb2.Manifest.FromString(unwrap(Kind.MANIFEST, stored))
    for name in ("target_names", "target_runs", "target_indexes", "target_counts"):
        body.ClearField(name)
    assert parse_manifest(wrap(Kind.MANIFEST, body.SerializeToString())) == MANIFEST


def test_too_many_counts_are_left_out_and_the_rest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, kept in (("MAX_COUNTS", 4), ("MAX_NAMES", 3)):
        monkeypatch.setattr(target_columns, limit, kept)
        assert decode_manifest(KEY, encode_manifest(COUNTED)) == COUNTED
        monkeypatch.setattr(target_columns, limit, kept - 1)
        assert decode_manifest(KEY, encode_manifest(COUNTED)) == MANIFEST
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (lambda m: m.target_runs.pop(), "for 2 of 3 segments"),
        (lambda m: m.target_runs.__setitem__(1, 1), "4 targets and 4 counts"),
        (lambda m: m.target_runs.__setitem__(1, 2**32 - 1), "4 targets and 4 counts"),
        (lambda m: m.target_counts.pop(), "4 targets and 3 counts"),
        (lambda m: m.target_indexes.append(0), "5 targets and 4 counts"),
        (lambda m: m.target_indexes.__setitem__(0, 3), "a target named by index 3 of 3"),
    ],
)
def test_forged_counts_are_refused(forge: Callable[[state_pb2.Manifest], object], message: str) -> None:
    body = state_pb2.Manifest.FromString(unwrap(Kind.MANIFEST, encode_manifest(COUNTED)))
    forge(body)
    with pytest.raises(FormatError, match=f"counts by target: .*{message}"):
        parse_manifest(wrap(Kind.MANIFEST, body.SerializeToString()))


def test_due_times_come_back_and_an_older_reader_passes_over_them() -> None:
    stored = golden("manifest-dues-v1.bin")
    assert encode_manifest(MARKED) == stored
    assert decode_manifest(KEY, stored) == MARKED
    body = state_pb2.Manifest.FromString(unwrap(Kind.MANIFEST, stored))
    for name in ("due_every", "due_mark_deltas"):
        body.ClearField(name)
    assert parse_manifest(wrap(Kind.MANIFEST, body.SerializeToString())) == MANIFEST


def test_too_many_due_times_are_thinned_and_the_rest_stays() -> None:
    refs = [
        SegmentRef(
            Position(at_ms, 4099),
            Position(at_ms + 159_000, 4099),
            160,
            9_000,
            0,
            Placement.POINTER,
            dues=marks_of(range(at_ms, at_ms + 160_000, 1_000)),
        )
        for at_ms in range(0, 10**9, 10**6)
    ]
    manifest = replace(MANIFEST, segments=tuple(refs))
    bare = replace(MANIFEST, segments=tuple(ref._replace(dues=NO_MARKS) for ref in refs))
    stored = encode_manifest(manifest)
    assert len(stored) - len(encode_manifest(bare)) < 3 * MOST_MARKS + 3 * len(refs)
    assert decode_manifest(KEY, stored) == replace(manifest, segments=thinned(refs))
    assert {ref.dues.every for ref in thinned(refs)} == {16}


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (lambda m: m.due_every.pop(), "4 for 2 of 3 segments"),
        (lambda m: m.due_every.append(1), "4 for 4 of 3 segments"),
        (lambda m: m.due_every.__setitem__(0, 1), "segment 0 has 4 due times for every 1 of 2048 entries"),
        (lambda m: m.due_every.__setitem__(0, 0), "segment 1 has due times that are not in order"),
        (lambda m: m.due_every.__setitem__(1, 2**32 - 1), "3 of no segment"),
        (lambda m: m.due_mark_deltas.pop(), "segment 1 has 2 due times for every 512 of 1977 entries"),
        (lambda m: m.due_mark_deltas.append(0), "1 of no segment"),
        (lambda m: m.due_mark_deltas.__setitem__(0, 2**64 - 1), "segment 0 has due times that are not in order"),
        (lambda m: m.due_mark_deltas.extend([0] * MOST_MARKS), f"{MOST_MARKS + 4} for 3 of 3 segments"),
        (lambda m: m.entries.__setitem__(0, 2**64 - 1), "segment 0 has 4 due times for every 1024"),
    ],
)
def test_forged_due_times_are_refused(forge: Callable[[state_pb2.Manifest], object], message: str) -> None:
    body = state_pb2.Manifest.FromString(unwrap(Kind.MANIFEST, golden("manifest-dues-v1.bin")))
    forge(body)
    with pytest.raises(FormatError, match=f"due times: {message}"):
        parse_manifest(wrap(Kind.MANIFEST, body.SerializeToString()))


def test_due_times_that_contradict_a_segment_are_not_written() -> None:
    wrong = FIRST._replace(dues=DueMarks(1024, (DUE_MS + 300_000,)))
    with pytest.raises(FormatError, match="due times: segment 0 has due times that are not in order"):
        encode_manifest(replace(MANIFEST, segments=(wrong, SECOND, THIRD)))


def test_extremes_come_back() -> None:
    edge = SegmentRef(Position(0, 0), Position(MOST, MOST - 1), MAX_ENTRIES, MOST, MOST, Placement.POINTER)
    manifest = Manifest(MOST, 0, MOST, 0, (edge,))
    assert decode_manifest(manifest_key(MOST), encode_manifest(manifest)) == manifest


def test_3000_segments_take_less_than_75_kb() -> None:
    manifest = _random_manifest(random.Random(3), segments=3000)
    assert len(encode_manifest(manifest)) < 75_000


def test_the_most_segments_and_one_more() -> None:
    refs = tuple(THIRD._replace(first=Position(due, 4099), last=Position(due, 4099)) for due in range(MAX_SEGMENTS + 1))
    most = replace(MANIFEST, segments=refs[:-1])
    assert decode_manifest(KEY, encode_manifest(most)) == most
    with pytest.raises(FormatError, match="bucket of 20001 segments; 1 to 20000 are possible"):
        encode_manifest(replace(MANIFEST, segments=refs))


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (replace(MANIFEST, bucket_id=-1), "bucket -1"),
        (replace(MANIFEST, bucket_id=2**63), "bucket 9223372036854775808"),
        (replace(MANIFEST, from_offset=-1), r"offsets \[-1, 10000\), which is no range"),
        (replace(MANIFEST, to_offset=4000), r"offsets \[4000, 4000\), which is no range"),
        (replace(MANIFEST, to_offset=2**63), "which is no range"),
        (replace(MANIFEST, segments=()), "bucket of 0 segments"),
        (replace(MANIFEST, to_offset=9999), r"segment 1 has offset 9999, outside of \[4000, 9999\)"),
        (replace(MANIFEST, from_offset=4020), "segment 0 has offset 4017, outside"),
        (replace(MANIFEST, segments=(SECOND, FIRST)), "segment 0 ends at .*, where the next begins at"),
        (replace(MANIFEST, segments=(THIRD, THIRD)), "segment 0 ends at .*, where the next begins at"),
        (replace(MANIFEST, segments=(FIRST._replace(first=Position(-1, 4017)),)), "segment 0 goes from"),
        (replace(MANIFEST, segments=(FIRST._replace(last=Position(2**63, 4017)),)), "segment 0 goes from"),
        (replace(MANIFEST, segments=(THIRD._replace(first=THIRD.last._replace(offset=4100)),)), "segment 0 goes from"),
        (replace(MANIFEST, segments=(FIRST._replace(entries=0),)), "segment 0 of 0 entries; 1 to 65536 are possible"),
        (replace(MANIFEST, segments=(FIRST._replace(entries=65_537),)), "segment 0 of 65537 entries"),
        (replace(MANIFEST, segments=(FIRST._replace(record_offset=-1),)), "segment 0 has record offset -1"),
        (replace(MANIFEST, segments=(FIRST._replace(size_bytes=-1),)), "segment 0 has size -1"),
        (replace(MANIFEST, needs_from=None), "points to offset 4099 and says the delay topic is needed from None"),
        (replace(MANIFEST, needs_from=4100), "points to offset 4099 and says the delay topic is needed from 4100"),
        (replace(MANIFEST, needs_from=3999), "needs the delay topic from 3999, outside of its own range"),
        (replace(MANIFEST, needs_from=10_000), "needs the delay topic from 10000, outside"),
    ],
)
def test_a_contradiction_is_not_written(manifest: Manifest, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        encode_manifest(manifest)


# Forged: the checksum is right, the content is not.


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (lambda m: m.Clear(), "which is no range"),
        (lambda m: m.__setattr__("bucket_id", -1), "bucket -1"),
        (lambda m: m.__setattr__("to_offset", 3999), "which is no range"),
        (lambda m: m.__setattr__("to_offset", 9000), "segment 0 has offset 9210, outside"),
        (lambda m: m.ClearField("needs_from"), "is needed from None"),
        (lambda m: m.entries.append(1), r"columns of lengths .*'entries': 4"),
        (lambda m: m.placements.pop(), r"columns of lengths .*'placements': 2"),
        (lambda m: m.placements.__setitem__(1, 3), "placement 3 of a segment is not known here; upgrade"),
        (lambda m: m.placements.__setitem__(1, 0), "placement 0 of a segment is not known here"),
        (lambda m: m.entries.__setitem__(1, 0), "segment 1 of 0 entries"),
        (lambda m: m.first_due_deltas.__setitem__(0, 2**64 - 1), "segment 0 goes from"),
        (lambda m: m.last_due_deltas.__setitem__(2, 2**64 - 1), "segment 2 goes from"),
        (lambda m: m.first_offsets.__setitem__(1, 0), "segment 0 ends at"),
        (lambda m: m.first_offsets.__setitem__(1, 2**64 - 1), "outside of"),
        (lambda m: m.record_offset_deltas.__setitem__(2, -9002), "segment 2 has record offset -1"),
        (lambda m: m.sizes.__setitem__(0, 2**63), "segment 0 has size 9223372036854775808"),
    ],
)
def test_a_forged_manifest_is_refused(forge: Callable[[state_pb2.Manifest], object], message: str) -> None:
    body = state_pb2.Manifest.FromString(unwrap(Kind.MANIFEST, golden("manifest-v1.bin")))
    forge(body)
    with pytest.raises(FormatError, match=message):
        parse_manifest(wrap(Kind.MANIFEST, body.SerializeToString()))


def test_too_many_segments_are_refused_before_they_are_made() -> None:
    body = state_pb2.Manifest(placements=[1] * (MAX_SEGMENTS + 1))
    for column in state_pb2.Manifest.DESCRIPTOR.fields:
        if 5 <= column.number <= 12:
            getattr(body, column.name)[:] = [1] * (MAX_SEGMENTS + 1)
    with pytest.raises(FormatError, match=r"columns of lengths .* not over 20000"):
        parse_manifest(wrap(Kind.MANIFEST, body.SerializeToString()))


def test_forged_bytes_give_a_sound_manifest_or_a_format_error() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    originals = [
        golden("manifest-v1.bin"),
        encode_manifest(_random_manifest(rng, segments=7)),
        encode_manifest(COUNTED),
        encode_manifest(MARKED),
    ]
    refused = 0
    for _ in range(3000):
        try:
            manifest = parse_manifest(forged(Kind.MANIFEST, rng.choice(originals), rng))
        except FormatError:
            refused += 1
        else:
            assert parse_manifest(encode_manifest(manifest)) == manifest
    assert 0 < refused < 3000, "nothing was damaged, or nothing got as far as the content"


def _random_manifest(rng: random.Random, *, segments: int) -> Manifest:
    from_offset = rng.choice((0, 5_000_000_000))
    to_offset = from_offset + rng.randint(100_000, 2_000_000)
    refs = []
    due_ms, record_offset = DUE_MS, 9000
    for _ in range(segments):
        first = Position(due_ms + rng.randint(1, 5000), rng.randrange(from_offset, to_offset))
        last = Position(first.due_ms + rng.randint(1, 300_000), rng.randrange(from_offset, to_offset))
        due_ms = last.due_ms
        record_offset += rng.randint(1, 3)
        entries, size_bytes = rng.randint(2, MAX_ENTRIES), rng.randint(20, 900_000)
        refs.append(SegmentRef(first, last, entries, size_bytes, record_offset, rng.choice(list(Placement))))
    points = any(ref.placement is Placement.POINTER for ref in refs)
    return Manifest(rng.randrange(2**40), from_offset, to_offset, from_offset if points else None, tuple(refs))

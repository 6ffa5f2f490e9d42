"""The backfill topic: buckets that wait to be adopted, and refusals that name them."""

import random
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from index.buckets.bucket import Manifest
from index.errors import FormatError
from index.rules.rules import Rules
from snapshots.envelope import Kind, wrap
from snapshots.proto import staged_pb2
from snapshots.segments.manifest import manifest_message
from snapshots.state.staged import (
    Intent,
    StagedBucket,
    decode_intent,
    decode_staged,
    encode_intent,
    encode_staged,
    fold_staged,
    intent_key,
    parse_intent,
    parse_staged,
    staged_key,
    staged_segment_key,
)
from tests.support.stored import MANIFEST, flipped, forged, golden

RULES = Rules("orders.delay", default_target="orders", max_delay_ms=604_800_000, version=2)
STAGED = StagedBucket("nightly-7", "kq3pQmZTRxu6dGVVTm5eJw", RULES, replace(MANIFEST, bucket_id=0), restores=False)
INTENT = Intent("nightly-7", snapshots_from=8_990, expires_ms=1_800_000_000_000)
KEY = staged_key("nightly-7", 4000)
INTENT_KEY = intent_key("nightly-7")
MOST = 2**63 - 1


def staged(job: str, from_offset: int, to_offset: int, *, restores: bool = False) -> StagedBucket:
    return StagedBucket(job, "id", RULES, Manifest(0, from_offset, to_offset, None, ()), restores)


def stored(one: StagedBucket) -> tuple[bytes, bytes]:
    return staged_key(one.job, one.manifest.from_offset), encode_staged(one)


def test_what_version_1_wrote_is_read() -> None:
    assert decode_staged(KEY, golden("staged-v1.bin")) == STAGED
    assert decode_intent(INTENT_KEY, golden("intent-v1.bin")) == INTENT


def test_what_is_written_is_version_1() -> None:
    assert encode_staged(STAGED) == golden("staged-v1.bin")
    assert encode_intent(INTENT) == golden("intent-v1.bin")


def test_keys_are_of_job_and_offset() -> None:
    assert KEY == b"bucket/nightly-7/00000000000000004000"
    assert INTENT_KEY == b"intent/nightly-7"
    assert staged_segment_key("nightly-7", 4000, 3, 12) == b"nightly-7/00000000000000004000/000003/12"
    assert staged_segment_key("j", 0, 0, "0f-2") == b"j/00000000000000000000/000000/0f-2"


@pytest.mark.parametrize("job", ["", "a" * 65, "a/b", "a b", "ü", "a\n", "a\x00"])
def test_a_job_that_is_no_name_is_refused(job: str) -> None:
    makers: list[Callable[[], bytes]] = [
        lambda: staged_key(job, 0),
        lambda: intent_key(job),
        lambda: staged_segment_key(job, 0, 0, 1),
        lambda: staged_segment_key("j", 0, 0, job),
        lambda: encode_staged(staged(job, 0, 1)),
        lambda: encode_intent(INTENT._replace(run=job)),
    ]
    for make in makers:
        with pytest.raises(FormatError, match="is no name of a job; 1 to 64 letters, digits") as raised:
            make()
        assert str(raised.value).isascii()


def test_every_flipped_bit_is_found() -> None:
    for key, name, decode in ((KEY, "staged-v1.bin", decode_staged), (INTENT_KEY, "intent-v1.bin", decode_intent)):
        value = golden(name)
        for bit in range(len(value) * 8):
            with pytest.raises(FormatError, match=r"of the backfill topic: "):
                decode(key, flipped(value, bit))


@pytest.mark.parametrize(
    ("decode", "key", "name", "message"),
    [
        (decode_staged, KEY, "staged-v1-truncated.bin", r"claims a body of \d+ bytes and has \d+"),
        (decode_staged, KEY, "staged-v2-future.bin", r"version 2 is not known here \(known: 1\); upgrade the router"),
        (decode_staged, KEY, "intent-v1.bin", r"holds kind 6, not STAGED \(5\)"),
        (decode_staged, KEY, "manifest-v1.bin", r"holds kind 3, not STAGED \(5\)"),
        (decode_staged, staged_key("nightly-8", 4000), "staged-v1.bin", "holds the bucket of job nightly-7 from"),
        (decode_staged, staged_key("nightly-7", 4001), "staged-v1.bin", "holds the bucket of job nightly-7 from"),
        (decode_staged, b"bucket/\xff", "staged-v1.bin", "holds the bucket of job nightly-7 from offset 4000"),
        (decode_intent, INTENT_KEY, "intent-v1-bit-flipped.bin", "checksum does not match"),
        (decode_intent, INTENT_KEY, "intent-v2-future.bin", "version 2 is not known here"),
        (decode_intent, INTENT_KEY, "staged-v1.bin", r"holds kind 5, not INTENT \(6\)"),
        (decode_intent, intent_key("nightly-8"), "intent-v1.bin", "holds the intent of nightly-7"),
    ],
)
def test_what_cannot_be_trusted_is_refused_by_name(
    decode: Callable[[bytes, bytes], object], key: bytes, name: str, message: str
) -> None:
    with pytest.raises(FormatError, match=message) as raised:
        decode(key, golden(name))
    assert re.match(r"record '(bucket|intent)/.*' of the backfill topic: ", str(raised.value))
    assert str(raised.value).isascii()


@pytest.mark.parametrize(
    "one",
    [
        staged("a", 0, 1),
        staged("Z.9_-" * 12, MOST - 1, MOST, restores=True),
        StagedBucket("j", "id", Rules("d", enabled=False), replace(MANIFEST, bucket_id=0), restores=True),
    ],
)
def test_a_staged_bucket_comes_back_as_it_was(one: StagedBucket) -> None:
    assert decode_staged(*stored(one)) == one


def test_an_intent_comes_back_as_it_was() -> None:
    for intent in (Intent("j", 0, 0), Intent("j", MOST, MOST)):
        assert decode_intent(intent_key("j"), encode_intent(intent)) == intent


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (STAGED._replace(manifest=MANIFEST), "staged bucket has id 42; only the owner of the partition gives ids"),
        (
            STAGED._replace(manifest=replace(MANIFEST, bucket_id=0, built_from=0)),
            "only the owner of the partition gives ids",
        ),
        (STAGED._replace(delay_topic_id=""), "staged bucket without the id of its delay topic"),
        (staged("j", 5, 5), r"bucket of offsets \[5, 5\), which is no range"),
    ],
)
def test_a_staged_bucket_that_contradicts_itself_is_neither_written_nor_read(one: StagedBucket, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        encode_staged(one)
    body = staged_pb2.Staged(job=one.job, delay_topic_id=one.delay_topic_id, rules=RULES.to_json())
    body.manifest.CopyFrom(manifest_message(replace(one.manifest, to_offset=10_000)))
    body.manifest.to_offset = one.manifest.to_offset
    with pytest.raises(FormatError, match=message):
        parse_staged(wrap(Kind.STAGED, body.SerializeToString()))


@pytest.mark.parametrize("intent", [Intent("j", -1, 0), Intent("j", 0, -1)])
def test_an_intent_out_of_range_is_neither_written_nor_read(intent: Intent) -> None:
    with pytest.raises(FormatError, match=r"intent has (offset|time) -1; 0 to"):
        encode_intent(intent)
    body = staged_pb2.Intent(job="j", snapshots_from=intent.snapshots_from, expires_ms=intent.expires_ms)
    with pytest.raises(FormatError, match=r"intent has (offset|time) -1; 0 to"):
        parse_intent(wrap(Kind.INTENT, body.SerializeToString()))


@pytest.mark.parametrize("seed", range(40))
def test_damage_under_a_right_checksum_is_a_format_error_or_another_bucket(seed: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(50):
        try:
            found = parse_staged(forged(Kind.STAGED, golden("staged-v1.bin"), rng))
        except FormatError:
            continue
        assert parse_staged(encode_staged(found)) == found


def test_the_fold_sorts_and_removes() -> None:
    one, two, rerun = staged("b", 7, 9), staged("a", 7, 8, restores=True), staged("b", 7, 12)
    gone = staged("a", 3, 7)
    records = [stored(one), (INTENT_KEY, encode_intent(INTENT)), stored(two), stored(gone), stored(rerun)]
    later = [(staged_key("a", 3), None), (intent_key("other"), None)]
    assert fold_staged([*records, *later]) == ([two, rerun], [INTENT])
    assert fold_staged([*records, *later, (INTENT_KEY, None)]) == ([two, rerun], [])
    assert fold_staged([]) == ([], [])


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (b"other/1", b"", r"key 'other/1' in the backfill topic is not known here; upgrade the router"),
        (None, b"", "a record without a key in the backfill topic"),
        (KEY, b"", "record 'bucket/nightly-7/00000000000000004000' of the backfill topic: 0 bytes are too few"),
        (INTENT_KEY, b"KDR", "record 'intent/nightly-7' of the backfill topic: 3 bytes are too few"),
    ],
)
def test_the_fold_refuses_what_it_does_not_know(key: bytes | None, value: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        fold_staged([(key, value)])
    if key is not None:
        assert fold_staged([(key, value), (key, None)]) == ([], [])

"""Tests that every shape of record that a broker accepts leaves a delay topic unchanged: released or rejected.

The tests write and read batches by hand (tests/wire), since a client could write few of them and would alter some. They
compare the content of the logs byte by byte.
"""

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import psutil
import pytest

from index.rules.unreadable import DELAY_UNREADABLE_HEADERS, MAX_HEADERS, decode_headers
from sidecar.dev import local_kafka
from tests.integration.scenario import APPEND_TIME, CREATE_TIME, Stage, wait_until
from tests.wire import Broker, RefusedByBroker, Stored, WireBatch, WireRecord, codecs
from tests.wire.batch import TRANSACTIONAL, WireHeader
from tests.wire.numbers import padded, varint

PROVENANCE: Final = (b"delay-due", b"delay-source", b"delay-source-timestamp", b"delay-id")
REASONS: Final = (b"delay-error", b"delay-error-message", b"delay-source")
UNREADABLE: Final = DELAY_UNREADABLE_HEADERS.encode()
SOON: Final = (b"deliver-after", b"300")
INT64_MAX: Final = 2**63 - 1

Sizes = [0, 1, 63, 64, 127, 128, 8_191, 8_192, 16_383, 16_384, 65_535, 65_536]

NAMES: Final = {
    "no UTF-8": b"\xff",
    "no UTF-8 behind text": b"trace\xfe",
    "half a surrogate": b"\xed\xa0\x80",
    "overlong NUL": b"\xc0\x80",
    "cut character": "\N{EURO SIGN}".encode()[:2],
    "NUL within": b"trace\0id",
    "NUL in front": b"\0trace",
    "NUL behind": b"trace\0",
    "NUL alone": b"\0",
    "control header behind a NUL": b"deliver-at\0x",
    "replacement character": "\N{REPLACEMENT CHARACTER}".encode(),
    "empty": b"",
    "blank": b" ",
    "line break": b"a\r\nb",
    "four bytes": "\N{GRINNING FACE}".encode(),
    "noncharacter": "￿".encode(),
    "byte order mark": b"\xef\xbb\xbfname",
    "right to left": "\u202ename".encode(),
    "long": b"n" * 40_000,
    "error of ours": b"delay-error",
    "source of ours": b"delay-source",
    "bytes of ours": UNREADABLE,
    "due of ours": b"delay-due",
}

HEADERS: Final[dict[str, Sequence[WireHeader]]] = {
    **{f"name: {name}": [(b"before", b"1"), SOON, (raw, b"\0\xff"), (b"after", None)] for name, raw in NAMES.items()},
    **{f"name: {name}, null": [SOON, (raw, None)] for name, raw in NAMES.items()},
    **{f"name: {name}, twice": [(raw, b"1"), SOON, (raw, b"")] for name, raw in NAMES.items()},
    **{f"value of {size} bytes": [SOON, (b"name", b"\0" * size)] for size in Sizes},
    **{f"name of {size} bytes": [SOON, (b"n" * size, b"v")] for size in Sizes},
    "none": [],
    "one, null": [(b"n", None)],
    "at once": [(b"n", b"v")],
    **{f"{count} headers": [SOON, *[(b"n", b"")] * (count - 1)] for count in (100, 101, 1_000, MAX_HEADERS)},
    **{f"{count} headers": [SOON, *[(b"n", None)] * (count - 1)] for count in (MAX_HEADERS + 1, 100_000, 100_001)},
    "150,000 of two bytes": [SOON, *[(b"", b"")] * 150_000],
    "control header, null": [(b"deliver-at", None)],
    "control header, no UTF-8 in its value": [(b"deliver-to", b"\xff\0")],
}

KEYS: Final = [None, b"", b"\0", b"\xff" * 3, b"\0\0\0\1", b"\0\0\0\0", b"k" * 70_000]
VALUES: Final = [None, b"", b"\0" * 5, b"v" * 500_000]


def shapes() -> Iterator[tuple[str, WireBatch]]:
    """Yield every batch to try, with its name."""
    for name, headers in HEADERS.items():
        yield name, WireBatch([WireRecord(b"k", b"v", headers)])
    for key, value in itertools.product(KEYS, VALUES):
        yield f"key {key and key[:5]!r}, value {value and value[:5]!r}", WireBatch([WireRecord(key, value, [SOON])])
        yield "the same with a bad name", WireBatch([WireRecord(key, value, [SOON, (b"\xff", b"")])])
    for attributes in (1, 2, 4, 8, 0x10, 0x20, 0x7F, -1):
        yield f"attributes {attributes}", WireBatch([WireRecord(b"k", b"v", [SOON], attributes=attributes)])
    now_ms = time.time_ns() // 1_000_000
    for at_ms in (-1, -2, 0, 1, now_ms, now_ms + 3_000_000, 2**53, INT64_MAX - 1, INT64_MAX, -(2**63)):
        # A timestamp in the future would make a relative delay wait.
        for headers in ([], [(b"deliver-at", b"%d" % (now_ms + 500))], [SOON] if at_ms <= now_ms else []):
            yield f"timestamp {at_ms}, {headers}", WireBatch([WireRecord(b"k", b"v", headers)], base_ms=at_ms)
    for base_ms, delta in ((0, now_ms), (INT64_MAX, now_ms - INT64_MAX), (now_ms, -now_ms), (now_ms, -now_ms - 1)):
        record = WireRecord(b"k", b"v", [SOON], timestamp_delta=delta)
        yield f"timestamp {base_ms} + {delta}", WireBatch([record], base_ms=base_ms)
    many = [WireRecord(b"%d" % n, b"v" * n, [SOON, (b"n", b"%d" % n)]) for n in range(200)]
    mixed = [
        WireRecord(b"%d" % n, None, [SOON, (b"ab\0\xff"[n % 4 :], None)] if n % 5 else [], timestamp_delta=n - 50)
        for n in range(100)
    ]
    for codec in (codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD):
        yield f"codec {codec}, one", WireBatch([WireRecord(b"k", b"v" * 1_000, [SOON])], codec=codec)
        yield f"codec {codec}, many", WireBatch(many, codec=codec)
        yield f"codec {codec}, mixed", WireBatch(mixed, codec=codec)
        yield f"codec {codec}, many headers", WireBatch([WireRecord(b"k", b"v", HEADERS["100001 headers"])], codec)
        yield f"codec {codec}, large", WireBatch([WireRecord(b"k", bytes(900_000), [SOON])], codec)
        yield f"codec {codec}, large names", WireBatch([WireRecord(b"k", b"", [SOON, (b"\xff" * 900_000, b"")])], codec)
    yield "idempotent", WireBatch([WireRecord(b"k", b"v", [SOON])], producer_id=-1, base_sequence=-1)
    yield (
        "gaps between offsets",
        WireBatch(
            [WireRecord(b"k", b"v", [SOON]), WireRecord(b"k", b"w", [SOON], offset_delta=1)], last_offset_delta=1
        ),
    )
    for size in (2, 3, 4, 5):
        raw = padded(1, size) + padded(1, size) + b"n" + padded(1, size) + b"v"
        yield f"numbers of {size} bytes", WireBatch([WireRecord(b"k", b"v", raw_headers=raw)])
    yield (
        "numbers of 5 bytes, bad name",
        WireBatch([WireRecord(b"k", b"v", raw_headers=padded(1, 5) + padded(2, 5) + b"\0\xff" + padded(-1, 5))]),
    )
    yield (
        "value of a header of length -2",
        WireBatch([WireRecord(b"k", b"v", raw_headers=varint(1) + varint(1) + b"n" + varint(-2))]),
    )
    yield "null headers", WireBatch([WireRecord(b"k", b"v", raw_headers=varint(-1))])
    for magic in (0, 1, 3):
        yield f"magic {magic}", WireBatch([WireRecord(b"k", b"v", [SOON])], magic=magic)
    yield "control batch", WireBatch([WireRecord(bytes(4), b"", [])], flags=0x20)


class Met(NamedTuple):
    """Topics in which a router has met all shapes, and the shapes that the broker has refused."""

    broker: Broker
    target: str
    delays: list[str]
    refused: list[str]


class Way(NamedTuple):
    """The path of records through a router: from memory at once, or sealed and read again, also by another owner."""

    after_ms: bytes
    target: dict[str, str]
    delay: dict[str, Any]
    router: dict[str, Any]
    is_killed: bool


AT_ONCE: Final = Way(SOON[1], APPEND_TIME, {}, {}, is_killed=False)
READ_AGAIN: Final = Way(
    b"5000",
    CREATE_TIME,
    # Without memory for payload, records that are not sealed yet are read again as well.
    {"placement": "pointer", "seal_records": 100, "seal_age": "100ms", "seal_beyond": "0s", "timestamp": "source"},
    {"payload_memory": "20KiB"},
    is_killed=True,
)


@pytest.fixture(
    scope="module", params=[AT_ONCE, pytest.param(READ_AGAIN, marks=pytest.mark.slow)], ids=["once", "again"]
)
def met(
    kafka: local_kafka.Cluster, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Met]:
    """Write all shapes, each with a good record behind it, to topics of both kinds of timestamps; a router runs."""
    way: Way = request.param
    stage, large = Stage(kafka.bootstrap, tmp_path_factory.mktemp("stage")), {"max.message.bytes": "4000000"}
    target = stage.target(config={**way.target, **large})
    options: dict[str, Any] = {"default_target": target, "max_delay": "0", "rejected_config": large, **way.delay}
    ahead = {"message.timestamp.after.max.ms": str(INT64_MAX)}
    delays = [
        stage.delay("created", config={**CREATE_TIME, **large, **ahead}, **options),
        stage.delay("appended", config={**APPEND_TIME, **large}, **options),
    ]
    refused: list[str] = []
    batches = [(name, _after(way, batch).encode()) for name, batch in shapes()]
    with stage.router(**way.router) as router, Broker(kafka.bootstrap) as broker:
        router.start_and_wait()
        lasts = set()
        for delay in delays:
            for name, batch in batches:
                try:
                    broker.produce(delay, 0, batch)
                except RefusedByBroker:
                    refused.append(name)
                broker.produce(delay, 0, _after(way, WireBatch([WireRecord(b"good", name.encode(), [SOON])])).encode())
            _transactions(broker, delay)
            last = broker.produce(delay, 0, _after(way, WireBatch([WireRecord(b"good", b"last", [SOON])])).encode())
            lasts.add(f"{delay}/0/{last}".encode())
        if way.is_killed:
            router.kill()
            router.start_and_wait()
        wait_until(lambda: lasts <= _sources(broker, target), f"{lasts} in the target", 60.0)
        yield Met(broker, target, delays, refused)
    stage.print_logs()


def _after(way: Way, batch: WireBatch) -> WireBatch:
    """Return the batch with another delay in place of SOON."""
    later = (SOON[0], way.after_ms)
    records = [
        replace(record, headers=[later if header == SOON else header for header in record.headers])
        for record in batch.records
    ]
    return replace(batch, records=records)


def _sources(broker: Broker, target: str) -> set[bytes | None]:
    """Return the sources of the records of a target, committed or not."""
    return {_source(record) for record in broker.records(target)}


def _source(record: Stored) -> bytes | None:
    """Return the source of a record: the last header of that name is the router's."""
    return [content for name, content in record.headers if name == b"delay-source"][-1]


def _transactions(broker: Broker, topic: str) -> None:
    """Write a committed and an aborted transaction, with good and bad records."""
    for commit in (True, False):
        name = f"{topic}.{commit}"
        producer = broker.init_producer_id(name)
        broker.add_partitions_to_txn(name, producer, [(topic, 0)])
        records = [WireRecord(b"t", b"%d" % commit, [SOON, (b"\xff", b"")]), WireRecord(b"t", b"%d" % commit, [SOON])]
        batch = WireBatch(records, 0, TRANSACTIONAL, None, None, *producer, 0)
        broker.produce(topic, 0, batch.encode(), transactional_id=name)
        broker.end_txn(name, producer, commit=commit)


def test_each_record_was_released_or_rejected_as_it_came(met: Met) -> None:
    released = met.broker.records(met.target, committed=True)
    rejected = [each for delay in met.delays for each in met.broker.records(f"{delay}.rejected", committed=True)]
    sources = [_source(each) for each in (*released, *rejected)]
    assert len(set(sources)) == len(sources), "a record has left twice"
    left = dict(
        zip(sources, (*((each, False) for each in released), *((each, True) for each in rejected)), strict=True)
    )
    counts = Counter[str]()
    for delay in met.delays:
        for sent in met.broker.records(delay, committed=True):
            source = f"{delay}/0/{sent.offset}".encode()
            assert source in left, f"{delay} has not left: {_shown(sent)}"
            counts[_judged(sent, *left.pop(source))] += 1
    assert not left, f"came from nowhere: {list(left)[:5]}"
    assert min(counts[kind] for kind in ("released", "INVALID_SCHEDULE", "UNREADABLE")) > 0, counts


def _judged(sent: Stored, found: Stored, is_rejected: bool) -> str:
    """Return the fate of a record. Raise AssertionError if it was altered."""
    assert (found.key, found.value) == (sent.key, sent.value), _shown(sent)
    if not is_rejected:
        assert _is_readable(sent), f"released though no client hands it over: {_shown(sent)}"
        kept = [each for each in sent.headers if not _is_ours(each[0])]
        assert list(found.headers[: len(kept)]) == kept, _shown(sent)
        ours = dict(found.headers[len(kept) :])
        assert ours.keys() <= set(PROVENANCE), _shown(sent)
        assert ours[b"delay-source-timestamp"] == b"%d" % sent.timestamp_ms, _shown(sent)
        return "released"
    assert [name for name, _ in found.headers[-3:]] == list(REASONS), _shown(sent)
    code = (found.headers[-3][1] or b"").decode()
    if code == "UNREADABLE":
        assert not _is_readable(sent), f"rejected though it can be read: {_shown(sent)}"
        assert found.headers[-4] == (UNREADABLE, sent.raw_headers), _shown(sent)
        assert decode_headers(found.headers[-4][1] or b"") == list(sent.headers)
        readable = [each for each in sent.headers if _is_text(each[0])] if len(sent.headers) <= MAX_HEADERS else []
        assert list(found.headers[:-4]) == readable, _shown(sent)
    else:
        assert list(found.headers[:-3]) == list(sent.headers), _shown(sent)
    return code


def _is_ours(name: bytes) -> bool:
    return name.startswith(b"deliver-") or name in PROVENANCE


def _is_readable(sent: Stored) -> bool:
    return len(sent.headers) <= MAX_HEADERS and all(_is_text(name) for name, _ in sent.headers)


def _is_text(name: bytes) -> bool:
    text = name.decode(errors="replace")
    return "\0" not in text and "\N{REPLACEMENT CHARACTER}" not in text


def _shown(sent: Stored) -> str:
    names = [name[:40] for name, _ in sent.headers[:10]]
    return f"offset {sent.offset}, key {str(sent.key)[:40]}, value {str(sent.value)[:40]}, headers {names}"


def test_the_broker_has_taken_nearly_all_shapes(met: Met) -> None:
    """A shape that the broker refuses never reaches the router, so the refused ones are counted here."""
    assert set(met.refused) == {"null headers", "magic 0", "magic 1", "magic 3", "control batch"}


def test_headers_cost_no_more_memory_than_is_said(kafka: local_kafka.Cluster, stage: Stage) -> None:
    """60 records of 99,000 headers, 18 MB, once took 479 MiB; the client may unpack 115 MB at once."""
    large, most_bytes = {"max.message.bytes": "4000000"}, 0
    target = stage.target()
    delay = stage.delay(default_target=target, config=large, rejected_config=large)
    many = WireBatch([WireRecord(b"k", b"v", [SOON, *[(b"n", b"")] * 98_999])]).encode()
    with Broker(kafka.bootstrap) as broker:
        for _ in range(60):
            broker.produce(delay, 0, many)
        broker.produce(delay, 0, WireBatch([WireRecord(b"good", b"last", [SOON])]).encode())

    def has_left() -> bool:
        nonlocal most_bytes
        most_bytes = max(most_bytes, router_process.memory_info().rss)
        return bool(stage.records(target))

    with stage.router() as router:
        router.start()
        router_process = psutil.Process(router.pid)
        wait_until(has_left, "the good record", 60.0)
    assert len(stage.records(f"{delay}.rejected")) == 60
    assert most_bytes < 350 << 20

"""Tests of the release: time, target and content of records, judged by the brokers' append times."""

import os
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from sidecar.dev.audit import AuditedRecord, check_order, ranges, read
from sidecar.kernel.choice import Kernel
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import CREATE_TIME, TIMEOUT_S, Header, Stage, header, now_ms, released_due_ms

ALIASES = ["cesium", "etf1", "karafka", "nservicebus", "timebridge"]
SOON: Header = ("deliver-after", b"600")

# Values of Kafka's own test of its murmur2; a Java producer puts a key into partition (hash & 0x7fffffff) % partitions.
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


UNITS = [
    {"name": "x-micros", "role": "at", "unit": "us"},
    {"name": "x-binary", "role": "at", "unit": "be-ms"},
]


@pytest.fixture(scope="module")
def stage(module_stage: Stage) -> Stage:
    """Return a stage with several targets, and delay topics for each timestamp mode and for aliases."""
    stage = module_stage
    out = stage.target("out")
    for name in ("out2", "order", "late"):
        stage.target(name)
    stage.target("wide", 5)
    every: dict[str, Any] = {"default_target": out, "allowed_targets": [f"{stage.word}.*"]}
    stage.delay("delay", 3, **every)
    stage.target("foreign-wide", 5)
    stage.delay("foreign", aliases=ALIASES, **(every | {"default_target": stage.target("foreign-out")}))
    own = every | {"default_target": stage.target("units-out"), "unknown_headers": "ignore"}
    stage.delay("units", aliases=UNITS, **own)
    for mode in ("release", "due", "source"):
        stage.target(f"by-{mode}", config=CREATE_TIME)
        stage.delay(f"mode-{mode}", config=CREATE_TIME, timestamp=mode, **every)
    return stage


@pytest.fixture(scope="module", autouse=True)
def router(stage: Stage) -> Iterator[RouterProcess]:
    """Run the router of all these tests; in the end audit all of their records."""
    with stage.router() as running:
        running.start_and_wait()
        yield running
        # The auditor knows no aliases, and judges by append times.
        targets = [name(stage, suffix) for suffix in ("out", "out2", "wide", "order", "late")]
        stage.settle([name(stage, "delay")], targets)
        assert running.stop() == 0


def name(stage: Stage, suffix: str) -> str:
    return f"{stage.word}.{suffix}"


def released(stage: Stage, target: str, source: str) -> AuditedRecord:
    """Wait for the record that waited at ``source``, and return it; the target must have exactly one."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found = [record for record in stage.records(target) if header(record, "delay-source") == source.encode()]
        if found:
            (only,) = found
            return only
        assert time.monotonic() < deadline, f"{source} never came to {target}"
        time.sleep(0.05)


def test_records_leave_in_order_of_due_time_then_offset_and_never_early(stage: Stage, rng: Random) -> None:
    delay, order = name(stage, "delay"), name(stage, "order")
    to: Header = ("deliver-to", order.encode())
    base_ms = now_ms() + 6_000
    # Few distinct due times, so that many records share one and the offset decides.
    wishes = [[("deliver-at", b"%d" % (base_ms + 5 * rng.randrange(150))), to] for _ in range(600)]
    stage.send_many(delay, wishes, partition=1)
    assert now_ms() < base_ms - 300, "the machine is too slow for this test: records would have been late"

    found = stage.wait_records(order, len(wishes))
    assert len(found) == len(wishes)
    sent = list(read(stage.kafka, ranges(stage.kafka, [delay])))
    assert check_order(sent, found) == []
    for record in found:
        assert record.appended
        assert record.timestamp_ms >= released_due_ms(record), "released early"


def test_what_is_indexed_after_its_due_time_goes_out_at_once(stage: Stage) -> None:
    delay, late = name(stage, "delay"), name(stage, "late")
    to: Header = ("deliver-to", late.encode())
    due_ms = now_ms() + 700
    last = stage.send(delay, ("deliver-at", b"%d" % due_ms), to, partition=2)
    released(stage, late, last)
    # The partition has released up to due_ms. These records are due earlier: they must neither wait nor be skipped.
    wishes: list[list[Header]] = [
        [],
        [("deliver-at", b"%d" % (due_ms - 60_000))],
        [("deliver-at", b"2001-09-09T01:46:40Z")],
        [("deliver-at", b"0")],
        [("deliver-after", b"0")],
    ]
    for wish in wishes:
        source = stage.send(delay, *wish, to, partition=2)
        released(stage, late, source)


def test_every_target_of_a_record_gets_it_once(stage: Stage) -> None:
    targets = [name(stage, suffix) for suffix in ("out", "out2", "wide")]
    named: list[Header] = [("deliver-to", target.encode()) for target in targets]
    source = stage.send(name(stage, "delay"), SOON, *named, ("h", b"1"), value=b"to all")
    copies = [released(stage, target, source) for target in targets]
    assert {copy.value for copy in copies} == {b"to all"}
    assert len({tuple(copy.headers) for copy in copies}) == 1


def test_partition_of_a_released_record_is_the_one_a_java_producer_would_choose(stage: Stage) -> None:
    delay, wide = name(stage, "delay"), name(stage, "wide")
    to: Header = ("deliver-to", wide.encode())
    by_own_key = {stage.send(delay, to, key=key): key for key in MURMUR2}
    by_given_key = {stage.send(delay, to, ("deliver-key", key), key=b"other"): key for key in MURMUR2}
    for source, key in [*by_own_key.items(), *by_given_key.items()]:
        record = released(stage, wide, source)
        assert (record.key, record.partition) == (key, (MURMUR2[key] & 0x7FFFFFFF) % 5)


def test_key_and_partition_can_be_chosen(stage: Stage) -> None:
    delay, wide = name(stage, "delay"), name(stage, "wide")
    to: Header = ("deliver-to", wide.encode())
    for partition in range(5):
        at: Header = ("deliver-partition", b"%d" % partition)
        assert released(stage, wide, stage.send(delay, to, at)).partition == partition
        moved = released(stage, wide, stage.send(delay, to, at, ("deliver-key", b"new")))
        assert (moved.partition, moved.key) == (partition, b"new")
    assert released(stage, wide, stage.send(delay, to, ("deliver-key", None))).key is None
    assert released(stage, wide, stage.send(delay, to, ("deliver-key", b""))).key == b""


def test_headers_arrive_byte_for_byte_and_provenance_can_be_trusted(stage: Stage) -> None:
    delay, out = name(stage, "delay"), name(stage, "out")
    own: list[Header] = [
        ("a", None),
        ("a", b""),
        ("b", bytes(range(256))),
        ("a", None),
        ("x-deliver-at", b"the user's"),
        ("délai", "ü".encode()),
        ("a", b"last"),
    ]
    planted: list[Header] = [
        ("delay-source", b"elsewhere/0/0"),
        ("delay-due", b"1"),
        ("delay-source-timestamp", b"1"),
        ("delay-id", b"not mine"),
        ("Delay-Source", b"elsewhere/0/1"),
        ("delay-hops", b"7"),
    ]
    due_ms = now_ms() + 500
    sent = [*own[:3], ("deliver-at", b"%d" % due_ms), *planted, ("deliver-id", b"\xff\x00id"), *own[3:]]
    source = stage.send(delay, *sent)
    record = released(stage, out, source)
    (original,) = [one for one in stage.records(delay) if one.place == source]
    assert list(record.headers) == [
        *own,
        ("delay-due", b"%d" % due_ms),
        ("delay-source", source.encode()),
        ("delay-source-timestamp", b"%d" % original.timestamp_ms),
        ("delay-id", b"\xff\x00id"),
    ]
    without_id = released(stage, out, stage.send(delay, *planted))
    assert [header_name for header_name, _ in without_id.headers] == [
        "delay-due",
        "delay-source",
        "delay-source-timestamp",
        "delay-hops",
    ]
    assert header(without_id, "delay-hops") == b"8", "it says that a router released it, and it names no time"


@pytest.mark.parametrize("value", [None, b"", b"\x00", b"v" * 100_000], ids=["null", "empty", "nul", "100kB"])
@pytest.mark.parametrize("key", [None, b"", b"a\x00b"], ids=["null", "empty", "nul"])
def test_null_is_not_empty(stage: Stage, key: bytes | None, value: bytes | None) -> None:
    record = released(stage, name(stage, "out"), stage.send(name(stage, "delay"), key=key, value=value))
    assert (record.key, record.value) == (key, value)


@pytest.mark.parametrize("mode", ["release", "due", "source"])
def test_timestamp_of_a_released_record(stage: Stage, mode: str) -> None:
    delay, target = name(stage, f"mode-{mode}"), name(stage, f"by-{mode}")
    sent_ms = now_ms() - 100_000
    due_ms = now_ms() + 500
    to: Header = ("deliver-to", target.encode())
    record = released(stage, target, stage.send(delay, ("deliver-at", b"%d" % due_ms), to, timestamp_ms=sent_ms))
    at_once = released(stage, target, stage.send(delay, to, timestamp_ms=sent_ms))
    match mode:
        case "release":
            assert due_ms <= record.timestamp_ms <= now_ms()
            assert at_once.timestamp_ms >= record.timestamp_ms
        case "due":
            assert record.timestamp_ms == due_ms
            assert at_once.timestamp_ms == sent_ms
        case "source":
            assert record.timestamp_ms == at_once.timestamp_ms == sent_ms
    assert header(at_once, "delay-due") == header(at_once, "delay-source-timestamp") == b"%d" % sent_ms


def test_headers_of_other_schedulers_are_understood(stage: Stage) -> None:
    foreign, out, wide = (name(stage, suffix) for suffix in ("foreign", "foreign-out", "foreign-wide"))
    # Whole seconds, as two of the schedulers write.
    due_s = now_ms() // 1_000 + 2
    due_ms = due_s * 1_000
    written = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(due_s)).encode()
    spaced = time.strftime("%Y-%m-%d %H:%M:%S:000000 Z", time.gmtime(due_s)).encode()
    cases: list[tuple[str, bytes | None, list[Header]]] = [
        (out, b"k", [("cesium-deliver-at", b"%d" % due_ms)]),
        (
            wide,
            b"t",
            [
                ("scheduler-epoch", b"%d" % due_s),
                ("scheduler-target-topic", wide.encode()),
                ("scheduler-target-key", b"t"),
            ],
        ),
        (
            wide,
            b"t",
            [
                ("schedule_target_epoch", b"%d" % due_s),
                ("schedule_target_topic", wide.encode()),
                ("schedule_target_key", b"t"),
                ("schedule_target_partition", b"4"),
                ("schedule_source_type", b"schedule"),
                ("schedule_schema_version", b"1.0.0"),
            ],
        ),
        (wide, b"k", [("X-Timebridge-When", written), ("X-Timebridge-Where", wide.encode())]),
        (wide, b"k", [("NServiceBus.DeliverAt", spaced), ("deliver-to", wide.encode())]),
    ]
    sources = [stage.send(foreign, ("own", b"1"), *headers) for _, _, headers in cases]
    for (target, key, headers), source in zip(cases, sources, strict=True):
        record = released(stage, target, source)
        assert (record.key, header(record, "delay-due")) == (key, b"%d" % due_ms), headers
        assert record.timestamp_ms >= due_ms, headers
        assert record.headers[0] == ("own", b"1")
        assert record.headers[1][0] == "delay-due", "headers of the other system are removed"
        if ("schedule_target_partition", b"4") in headers:
            assert record.partition == 4
    after = stage.send(foreign, ("cesium-delay-ms", b"400"))
    record = released(stage, out, after)
    assert released_due_ms(record) == int(header(record, "delay-source-timestamp") or b"") + 400


def test_names_in_any_case_units_of_others_and_times_as_in_the_configuration(
    stage: Stage, router: RouterProcess
) -> None:
    delay, out, due_ms = name(stage, "units"), name(stage, "units-out"), now_ms() + 400
    wishes: list[Header] = [
        ("Deliver-At", b"%d" % due_ms),
        ("x-micros", b"%d" % (due_ms * 1_000)),
        ("X-Binary", due_ms.to_bytes(8, "big")),
    ]
    for source in [stage.send(delay, wish, ("deliver-after", None), ("own", b"1")) for wish in wishes]:
        record = released(stage, out, source)
        assert header(record, "delay-due") == b"%d" % due_ms
        assert record.timestamp_ms >= due_ms
        assert record.headers[0] == ("own", b"1")
        assert record.headers[1][0] == "delay-due"
    record = released(stage, out, stage.send(delay, ("deliver-after", b"1s")))
    assert released_due_ms(record) == int(header(record, "delay-source-timestamp") or b"") + 1_000


def test_a_record_without_a_time_is_counted_and_an_unknown_header_may_be_ignored(
    stage: Stage, router: RouterProcess
) -> None:
    units = name(stage, "units")
    series = f'records_without_time_total{{topic="{units}"}}'
    before = router.metric(series)
    sources = [stage.send(units, *wish) for wish in ([], [("deliver-at", None)], [("deliver-at", b"0")])]
    ignored = stage.send(units, ("deliver-att", b"%d" % (now_ms() + 60_000)))
    for source in [*sources, ignored]:
        released(stage, name(stage, "units-out"), source)
    assert router.metric(series) == before + 3, "an instant of 1970 is a time"


def test_deliver_at_wins_over_deliver_after_and_is_counted(stage: Stage, router: RouterProcess) -> None:
    due_ms = now_ms() + 300
    source = stage.send(name(stage, "delay"), ("deliver-after", b"PT1H"), ("deliver-at", b"%d" % due_ms))
    assert header(released(stage, name(stage, "out"), source), "delay-due") == b"%d" % due_ms
    assert router.metric(f'records_both_times_total{{topic="{name(stage, "delay")}"}}') == 1


def test_the_router_tells_which_kernel_has_written_all_of_this(router: RouterProcess) -> None:
    kernel = Kernel.chosen(os.environ)
    (told,) = router.events("kernel_chosen")
    assert (told["kernel"], told["why"]) == (kernel.name, kernel.why_not)

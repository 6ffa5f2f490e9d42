"""Reports: written ones are read back, foreign and unreadable ones are ignored, and the right one wins."""

import json
from bisect import bisect_left
from dataclasses import fields, replace

import pytest

from index.buckets.target_counts import OTHERS
from index.errors import FormatError
from index.partition.survey import BOUNDS_MS, SPREAD_BOUNDS_MS
from index.pending.progress import Position
from index.rules.retrying import Retry
from sidecar.engine.ownership.attempts import AttemptCounts
from sidecar.engine.ownership.status import PartitionState, PartitionStatus
from sidecar.lateness import LATENESS_BOUNDS_MS, released_within
from sidecar.operations.status import reports
from sidecar.operations.status.inquiries import (
    last_answer,
    partition_answer,
    pending_answer,
    retries_answer,
)
from sidecar.operations.status.reports import (
    PARTITIONS_A_PART,
    SILENT_MS,
    STALE_MS,
    GroupReports,
    Reported,
    Vitals,
    best,
    decode_report,
    encode_report,
    recent_lateness,
    report_key,
    targets_of,
    with_vitals,
)

STATUS = PartitionStatus(
    "orders.delay",
    3,
    PartitionState.ACTIVE,
    "why",
    pending=17,
    next_due_ms=1_800_000_000_000,
    lag=4,
    cursor=99,
    buckets=2,
    held=1,
    held_since_ms=7,
    snapshot_bytes=512,
    by_due=(1, 0, 16, 0, 0, 0, 0, 0, 0, 0),
    spread=(1, 0, 10, 0, 6, *(0 for _ in SPREAD_BOUNDS_MS[4:])),
    released=40,
    lateness=tuple(range(len(LATENESS_BOUNDS_MS) + 1)),
    lateness_ever=tuple(range(3, len(LATENESS_BOUNDS_MS) + 4)),
    needed_from=80,
    retention_ms=-1,
    by_target=(("orders", 16), (OTHERS, 1)),
    attempts=AttemptCounts(5, (9, 4, 2, 1, 0, 3), (3, 2, 1, 0, 0, 1), ((70, 8), (71, 9))),
    watermark=Position(1_799_999_999_999, 98),
)
KEY = report_key("group/with/slashes", "router-0", 0)


def decoded(value: bytes, key: bytes = KEY) -> list[PartitionStatus]:
    found = decode_report(key, value, "group/with/slashes")
    assert found is not None
    assert found.instance == "router-0"
    return found.statuses


def test_what_is_written_is_read() -> None:
    fencing = PartitionStatus("orders.delay", 4, PartitionState.FENCING)
    (value,) = encode_report("group/with/slashes", "router-0", "native", [fencing, STATUS])
    assert json.loads(value)["version"] == 1
    assert decoded(value) == [STATUS, fencing]


def test_every_field_is_read_as_it_was_written_or_is_not_reported() -> None:
    whole = replace(
        STATUS,
        furthest_due_ms=1_900_000_000_000,
        sealed_to=70,
        held_by_target={"orders": 1},
        needed_since_ms=5,
        hidden_s=1.5,
        in_doubt=1,
        masked=2,
    )
    unset = [each.name for each in fields(whole) if getattr(whole, each.name) == each.default]
    assert not unset, f"set {unset} here, so that it is known what a report makes of them"
    (value,) = encode_report("group/with/slashes", "router-0", "native", [whole])
    # Only the process itself shows these, as metrics.
    assert decoded(value) == [replace(whole, held_by_target={}, hidden_s=0.0, in_doubt=0, masked=0)]


def test_many_partitions_are_several_parts_and_none_is_one() -> None:
    many = [replace(STATUS, partition=number) for number in range(2 * PARTITIONS_A_PART + 1)]
    values = encode_report("group/with/slashes", "router-0", "native", many)
    assert len(values) == 3
    assert [each for value in values for each in decoded(value)] == many
    assert max(map(len, values)) < 500_000
    (empty,) = encode_report("group/with/slashes", "router-0", "native", [])
    assert decoded(empty) == []


def test_another_group_is_passed_over_and_what_is_unreadable_is_named() -> None:
    (value,) = encode_report("other", "router-0", "native", [STATUS])
    assert decode_report(report_key("other", "router-0", 0), value, "group") is None
    plain = json.loads(value)
    broken = [b"", b"[]", b"\xff", b"{}", json.dumps({**plain, "version": 2}).encode()]
    broken.append(json.dumps({**plain, "partitions": [{"topic": "t"}]}).encode())
    broken.append(json.dumps({**plain, "partitions": [{**plain["partitions"][0], "pending": "many"}]}).encode())
    for each in broken:
        with pytest.raises(FormatError):
            decode_report(report_key("group", "router-0", 0), each, "group")
    for key in (None, b"", b"router-0", b"\xff/x"):
        with pytest.raises(FormatError):
            decode_report(key, value, "group")


def test_what_a_newer_router_adds_is_passed_over() -> None:
    (value,) = encode_report("group/with/slashes", "router-0", "native", [STATUS])
    plain = json.loads(value)
    plain["partitions"][0] |= {"state": "resting", "more": 1}
    (found,) = decoded(json.dumps(plain).encode())
    assert (found.state, found.pending) == (PartitionState.WAITING, 17)


def test_vitals_are_those_that_the_router_told_last() -> None:
    vitals = Vitals("0.2.0", "one", 5, 0.25, 7)
    (part,) = encode_report("group/with/slashes", "router-0", "native", [STATUS])
    known = GroupReports("group/with/slashes")
    known.add(KEY, part, 1_000, 0)
    assert known.vitals() == {}, "a router that is too old tells none"
    told = known.add(KEY, with_vitals(part, vitals), 1_000, 1)
    assert told is not None
    assert (told.statuses, told.vitals, known.vitals()) == ([STATUS], vitals, {"router-0": vitals})
    known.add(KEY, part[:-1] + b',"vitals":{"newer":1}}', 1_000, 2)
    assert known.vitals() == {"router-0": Vitals("", "", None, None, None)}
    with pytest.raises(FormatError):
        known.add(KEY, part[:-1] + b',"vitals":{"since_ms":"soon"}}', 1_000, 3)


def test_the_kernel_is_that_of_the_router_and_none_of_one_that_does_not_tell() -> None:
    (value,) = encode_report("group/with/slashes", "router-0", "python", [])
    told = decode_report(KEY, value, "group/with/slashes")
    assert told is not None
    assert told.kernel == "python"
    plain = json.loads(value)
    del plain["kernel"]
    older = decode_report(KEY, json.dumps(plain).encode(), "group/with/slashes")
    assert older is not None
    assert older.kernel == ""


def reported(state: PartitionState, offset: int, instance: str = "a", partition: int = 0) -> Reported:
    return Reported(PartitionStatus("t", partition, state), instance, 1_000, offset)


def test_the_newer_report_of_one_who_serves_it_wins() -> None:
    serving, draining = PartitionState.ACTIVE, PartitionState.PAUSED
    for chosen, others in (
        (reported(serving, 5), [reported(PartitionState.FENCING, 9, "b")]),
        (reported(serving, 9), [reported(draining, 5, "b"), reported(PartitionState.REPLAYING, 10, "c")]),
        (reported(PartitionState.REPLAYING, 9), [reported(PartitionState.FENCING, 5, "b")]),
        (reported(PartitionState.WAITING, 1), [reported(PartitionState.STOPPED, 5, "b")]),
    ):
        assert best([chosen, *others]) == best([*others, chosen]) == {("t", 0): chosen}
    assert best([reported(PartitionState.STOPPED, 1)]) == {}


def test_a_report_holds_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    known = GroupReports("g")
    for part, (partition, at_ms) in enumerate([(0, 1_000), (1, 9_000)]):
        (value,) = encode_report("g", "a", "native", [replace(STATUS, partition=partition)])
        known.add(report_key("g", "a", part), value, at_ms, part)
    now_ms = 1_000 + STALE_MS
    assert [each.status.partition for each in known.reported(now_ms)] == [0, 1]
    assert [each.status.partition for each in known.reported(now_ms + 1)] == [1]
    assert known.kernels(now_ms + 1) == {"a": "native"}
    known.forget(now_ms + 1)
    assert [(place[1], each.at_ms) for place, each in known.last_told().items()] == [(0, 1_000), (1, 9_000)]
    (value,) = encode_report("g", "b", "native", [replace(STATUS, partition=0, state=PartitionState.STOPPED)])
    known.add(report_key("g", "b", 0), value, 9_000, 7)
    assert known.kernels(now_ms + 1) == {"a": "native"}, "one that has stopped is no router any more"
    known.forget(now_ms + 1)
    assert {place[1]: each.instance for place, each in known.last_told().items()} == {0: "b", 1: "a"}
    assert {each.instance: each.status.partition for each in known.reported(now_ms)} == {"a": 1, "b": 0}
    known.add(report_key("g", "a", 1), None, now_ms, 2)
    assert known.kernels(now_ms) == {}
    monkeypatch.setattr(reports, "MAX_REPORT_BYTES", 10)
    with pytest.raises(FormatError):
        known.add(report_key("g", "a", 1), b" " * 11, now_ms, 3)


def test_a_killed_router_does_not_count_once_others_report_all_its_partitions() -> None:
    known = GroupReports("g")

    def report(instance: str, partitions: list[int], at_ms: int, offset: int) -> None:
        (value,) = encode_report("g", instance, "native", [replace(STATUS, partition=number) for number in partitions])
        known.add(report_key("g", instance, 0), value, at_ms, offset)

    report("killed", [0, 1], 1_000, 1)
    report("other", [0, 2], 2_000, 2)
    assert set(known.kernels(9_000)) == {"killed", "other"}, "nobody else reports its partition 1"
    report("other", [0, 1, 2], 3_000, 3)
    assert set(known.kernels(1_000 + SILENT_MS)) == {"killed", "other"}, "it may be about to report the loss"
    assert set(known.kernels(1_001 + SILENT_MS)) == {"other"}
    report("killed", [], 9_000, 4)
    assert set(known.kernels(9_000)) == {"killed", "other"}, "it runs, and stands by"


def test_an_answer_tells_all_of_a_report() -> None:
    answer = partition_answer(Reported(STATUS, "router-0", 5_000, 1), 7_500)
    assert (answer.instance, answer.age_ms, answer.state) == ("router-0", 2_500, "active")
    assert (answer.watermark_due_ms, answer.watermark_offset) == STATUS.watermark
    for name in ("partition", "why", "pending", "lag", "cursor", "next_due_ms", "furthest_due_ms", "buckets", "held"):
        assert getattr(answer, name) == getattr(STATUS, name)
    before = partition_answer(Reported(replace(STATUS, watermark=None), "a", 5_000, 1), 4_000)
    assert (before.watermark_due_ms, before.watermark_offset, before.age_ms) == (None, None, 0)


def test_an_unserved_partition_is_told_of_by_its_last_report() -> None:
    last = Reported(replace(STATUS, cursor=100), "router-0", 5_000, 1)
    answer = last_answer(last, 130, 65_000)
    assert (answer.state, answer.lag, answer.age_ms, answer.pending) == ("unserved", 30, 60_000, STATUS.pending)
    assert (answer.instance, answer.why) == ("", "no router has it: router-0 reported it last")
    stopped = last._replace(status=replace(last.status, state=PartitionState.STOPPED))
    assert last_answer(stopped, None, 65_000).why == "no router has it: router-0 stopped"
    assert last_answer(stopped, None, 65_000).lag is None


def test_ranges_that_are_not_those_of_today_are_left_out() -> None:
    (value,) = encode_report("group/with/slashes", "router-0", "native", [STATUS])
    plain = json.loads(value)
    assert plain["partitions"][0]["spread"] == {"0": 1, "2": 10, "4": 6}
    for spread in ({"-1": 3}, {str(len(SPREAD_BOUNDS_MS) + 1): 3}, {}):
        plain["partitions"][0]["spread"] = spread
        assert decoded(json.dumps(plain).encode()) == [replace(STATUS, spread=())]
    del plain["partitions"][0]["spread"], plain["partitions"][0]["lateness"]
    assert decoded(json.dumps(plain).encode()) == [replace(STATUS, spread=(), lateness=())]
    plain["partitions"][0]["lateness"] = [1, 2, 3]
    assert decoded(json.dumps(plain).encode()) == [replace(STATUS, spread=(), lateness=())]


def test_attempts_that_are_counted_in_another_way_are_left_out() -> None:
    (value,) = encode_report("group/with/slashes", "router-0", "native", [STATUS])
    plain = json.loads(value)
    told = plain["partitions"][0]["attempts"]
    for counts in ({"released": [1, 2]}, {"last_minute": [1]}):
        plain["partitions"][0]["attempts"] = told | counts
        assert decoded(json.dumps(plain).encode()) == [replace(STATUS, attempts=None)]
    del plain["partitions"][0]["attempts"]
    assert decoded(json.dumps(plain).encode()) == [replace(STATUS, attempts=None)]


def test_attempts_are_summed_over_partitions_that_tell_them() -> None:
    retry = Retry(1_000, 2_000, 60_000, 100, 8, "dead")
    one = replace(STATUS, partition=0)
    other = replace(one, partition=1, attempts=AttemptCounts(4, (1, 0, 0, 0, 0, 1), (1, 0, 0, 0, 0, 0), ((5, 10),)))
    silent = replace(one, partition=2, attempts=None)
    away = replace(one, partition=3, state=PartitionState.WAITING)
    found = [Reported(each, "r", 1_000, 7) for each in (one, other, silent, away)]
    answer = retries_answer(retry, found, range(5))
    assert [(each.attempt, each.wait_from_ms, each.wait_to_ms, each.released) for each in answer.by_attempt] == [
        ("1", 900, 1_000, 10),
        ("2", 1_800, 2_000, 4),
        ("3", 3_600, 4_000, 2),
        ("4-7", 7_200, 60_000, 1),
        ("8+", 54_000, 60_000, 0),
    ]
    assert [each.per_minute for each in answer.by_attempt] == [4, 2, 1, 0, 0]
    assert (answer.attempts, answer.dead_letter, answer.since_ms, answer.uncounted) == (8, "dead", 4, (2, 3, 4))
    assert (answer.exhausted, answer.exhausted_per_minute) == (4, 1)
    newest = [(each.partition, each.offset, each.at_ms) for each in answer.last_exhausted]
    assert newest == [(1, 5, 10), (0, 71, 9), (0, 70, 8)]


def test_no_rate_is_told_before_each_partition_has_one() -> None:
    new = replace(STATUS, partition=1, attempts=AttemptCounts(6))
    found = [Reported(each, "r", 1_000, 7) for each in (STATUS, new)]
    answer = retries_answer(Retry(1_000, 2_000, 60_000, 0, 2, "dead"), found, (1, 3))
    assert [(each.attempt, each.wait_to_ms, each.released, each.per_minute) for each in answer.by_attempt] == [
        ("1", 1_000, 9, None),
        ("2", 2_000, 4, None),
        ("3", None, 2, None),
        ("4-7", None, 1, None),
    ]
    assert (answer.exhausted, answer.exhausted_per_minute, answer.uncounted) == (3, None, ())
    nothing = retries_answer(Retry(1_000, 2_000, 60_000, 0, 1, "dead"), [], (0,))
    assert (nothing.since_ms, nothing.exhausted, nothing.uncounted) == (None, 0, (0,))
    assert [(each.attempt, each.per_minute) for each in nothing.by_attempt] == [("1", None)]


def test_lateness_is_summed_over_partitions_that_tell_it() -> None:
    one, two = released_within([0, 9], 10), released_within([10], 10)
    statuses = [replace(STATUS, lateness=tuple(counts)) for counts in (one, two, ())]
    assert recent_lateness(statuses) == released_within([0, 9, 10], 10)
    assert recent_lateness([statuses[2]]) == []


def test_pending_is_told_by_minute_and_by_hour() -> None:
    spread = [0] * (len(SPREAD_BOUNDS_MS) + 1)
    for due_ms in (-5, 1, 9_000, 60_000, 60_001, 3_600_000, 3_600_001, 7 * 86_400_000, 7 * 86_400_000 + 1):
        spread[bisect_left(SPREAD_BOUNDS_MS, due_ms)] += 1
    older = replace(STATUS, spread=())
    answer = pending_answer("orders.delay", [replace(STATUS, spread=tuple(spread)), older, STATUS], [])
    assert answer.next_hour == (3 + 10, 1 + 6, *(0,) * 57, 1)
    assert answer.next_week == (5 + 10 + 6, 1, *(0,) * 165, 1)
    assert pending_answer("orders.delay", [older], []).next_hour == (0,) * 60


def test_pending_is_summed_over_partitions_with_every_target_once() -> None:
    many = tuple((f"t{number:02}", 100 - number) for number in range(20))
    one = replace(STATUS, by_due=(1,) * 10, by_target=(("orders", 4), ("bills", 5), (OTHERS, 1)))
    two = replace(STATUS, by_due=(2,) * 10, by_target=(("orders", 20), *many[:19]))
    answer = pending_answer("orders.delay", [one, two], [7])
    assert (answer.records, answer.unserved) == (30, (7,))
    assert [each.records for each in answer.by_due] == [3] * 10
    assert [each.within_s for each in answer.by_due] == [*(bound / 1_000 for bound in BOUNDS_MS), None]
    assert len(answer.by_target) == 20
    assert next(iter(answer.by_target)) == "t00"
    assert answer.by_target["orders"] == 24
    assert answer.other_targets == 1 + 5  # "bills" is the smallest of 21
    empty = pending_answer("orders.delay", [], [])
    assert (empty.records, len(empty.by_due), empty.by_target) == (0, 10, {})
    assert targets_of(STATUS) == ({"orders": 16}, 1)

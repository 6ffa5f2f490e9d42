"""The needs of a load, by hand-made sums, by the router's own limits, and at their extremes."""

from dataclasses import asdict

import pytest

from index.buckets.bucket_rules import rewrites
from sidecar.cluster.topics.retention import wanted_retention_ms
from sidecar.config.delay_topic import DAY_MS, DelayTopicConfig
from sidecar.config.model import RouterConfig
from sidecar.operations.sizing.capacity import (
    DUE_A_SECOND,
    PENDING_BYTES,
    Load,
    TransactionRates,
    catch_up_s,
    plan,
    processes,
)
from sidecar.operations.sizing.clients import connections, threads
from sidecar.operations.sizing.memory import MIB, MOST_TIMES

WEEK = Load(rate_s=5_000, delay_ms=7 * DAY_MS, size_bytes=500, partitions=12, brokers=3)


def test_the_example_of_operations_comes_out() -> None:
    planned = plan(WEEK)
    assert (planned.pending, planned.processes) == (3_024_000_000, 2)
    assert planned.disk.delay_topic_bytes == 5_000 * 500 * 14 * 86_400 * 3
    assert planned.disk.pointer_snapshots_bytes == pytest.approx(83e9, rel=0.01)
    assert planned.disk.inline_snapshots_bytes == pytest.approx(9.6e12, rel=0.01)


def test_defaults_are_those_of_the_configuration() -> None:
    planned = plan(WEEK)
    topic = DelayTopicConfig.model_validate({"name": "d"})
    assert planned.memory.payload_bytes == RouterConfig().payload_memory_bytes
    assert planned.lanes == RouterConfig().lanes == 0
    assert planned.disk.delay_topic_kept_ms == wanted_retention_ms(topic)
    longer = plan(Load(5_000, 30 * DAY_MS, 500, 12, 3))
    assert longer.disk.delay_topic_kept_ms == 37 * DAY_MS


def test_memory_has_room_for_the_partitions_of_a_process_that_is_away() -> None:
    two, three = plan(WEEK), plan(Load(DUE_A_SECOND, 1_000_000, 500, 12, 3))
    assert (two.partitions_each, two.partitions_at_most) == (6, 12)
    assert (three.processes, three.partitions_each, three.partitions_at_most) == (3, 4, 6)
    of_pending = three.memory.index_bytes + three.memory.manifests_bytes
    assert of_pending == PENDING_BYTES * three.pending // 2
    assert two.memory.total_bytes == sum(asdict(two.memory).values())
    assert two.memory.fetch_bytes > MOST_TIMES * MIB


def test_manifests_alone_take_more_where_records_are_few_in_each_of_many_partitions() -> None:
    thin = plan(Load(6, 30 * DAY_MS, 200, 100, 3))
    assert thin.memory.index_bytes == 0
    assert thin.memory.manifests_bytes > PENDING_BYTES * thin.pending
    assert thin.memory.manifests_bytes < 100 * thin.pending


def test_nothing_is_sealed_that_is_due_at_once() -> None:
    quick = plan(Load(1_000, 10_000, 200, 4, 3))
    assert quick.memory.manifests_bytes == 0
    assert (quick.disk.inline_snapshots_bytes, quick.disk.pointer_snapshots_bytes) == (0, 0)
    assert quick.traffic.written_bytes_s == 2 * 1_000 * 200


def test_merges_write_records_again() -> None:
    values_s, segments_s = 5_000 * 500, 5_000 * 530
    again = rewrites(7 * 24 * 60, 24)
    traffic = plan(WEEK).traffic
    assert traffic.written_bytes_s == pytest.approx(2 * values_s + segments_s * (1 + again), rel=1e-6)
    assert traffic.replicated_bytes_s == 2 * traffic.written_bytes_s
    assert plan(Load(5_000, 7 * DAY_MS, 500, 12, 1)).traffic.replicated_bytes_s == 0


@pytest.mark.parametrize(
    ("rate_s", "partitions", "transactions_s", "markers_s", "scattered_s"),
    [
        pytest.param(50, 100, 50, 100, 100, id="a record each"),
        pytest.param(1_000, 4, 500, 1_000, 1_500, id="two records each"),
        pytest.param(50_000, 4, 400, 800, 2_000, id="a batch a tick"),
        pytest.param(50_000, 1, 100, 200, 200, id="one partition"),
    ],
)
def test_transactions_share_what_is_due_together(
    rate_s: int, partitions: int, transactions_s: int, markers_s: int, scattered_s: int
) -> None:
    rates = plan(Load(rate_s, 1_000_000, 200, partitions, 3)).transactions
    assert (rates.transactions_s, rates.markers_s, rates.scattered_markers_s) == (
        transactions_s,
        markers_s,
        scattered_s,
    )


def test_many_partitions_of_a_process_share_lanes() -> None:
    planned = plan(Load(5_000, 60_000, 200, 100, 30))
    assert (planned.lanes, planned.threads, planned.connections) == (2, threads(100, 2, 30), connections(100, 2, 30))
    assert planned.transactions == TransactionRates(500, 10_000, 10_000)
    assert planned.transactions.commits_s == 5_000
    fewer = plan(Load(5_000, 60_000, 200, 99, 30))
    assert (fewer.lanes, fewer.threads, fewer.transactions.transactions_s) == (0, threads(99, 0, 30), 5_000)


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (Load(100, 60_000, 200, 2, 3), []),
        (Load(100, 60_000, 200, 1, 3), ["of 2 processes only 1 work"]),
        (Load(1_000, 60_000, 200, 100, 1), []),
        (Load(5_000, 60_000, 200, 100, 1), ["100 partitions ask for more"]),
        (Load(5_000, 60_000, 200, 99, 1), ["99 partitions ask for more", "take 200 to 1,000 transactions"]),
        (Load(100, 60_000, 200, 301, 1), ["no process with more than 300 partitions"]),
        (Load(1_000, 60_000, 200, 4, 3), ["give the target as many partitions"]),
        (Load(100, 60_000, 600_000, 2, 3), ["larger than segment_bytes"]),
        (Load(100, 60_000, 2_000_000, 2, 3), ["raise max.message.bytes"]),
    ],
)
def test_remarks(load: Load, said: list[str]) -> None:
    remarks = plan(load).remarks
    assert len(remarks) == len(said), remarks
    for part, remark in zip(said, remarks, strict=True):
        assert part in remark


@pytest.mark.parametrize("rate_s", [1, 10**9])
@pytest.mark.parametrize("delay_ms", [1, 36_500 * DAY_MS])
@pytest.mark.parametrize("size_bytes", [1, 1 << 50])
@pytest.mark.parametrize("partitions", [1, 10**6])
@pytest.mark.parametrize("brokers", [1, 10**4])
def test_every_load_that_the_command_takes_has_a_plan(
    rate_s: int, delay_ms: int, size_bytes: int, partitions: int, brokers: int
) -> None:
    planned = plan(Load(rate_s, delay_ms, size_bytes, partitions, brokers))
    assert planned.memory.total_bytes > 512 * MIB
    assert planned.transactions.transactions_s >= 1
    assert all(value >= 0 for value in asdict(planned.disk).values())


def test_a_process_always_catches_up() -> None:
    for rate_s in (1, DUE_A_SECOND // 2, DUE_A_SECOND, 10 * DUE_A_SECOND, 10**9):
        assert 0 < catch_up_s(600, rate_s / (processes(rate_s) - 1)) < 600

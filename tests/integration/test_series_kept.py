"""Tests that recurring schedules of a started-over partition continue once, or that the count of ended ones is
reported.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from snapshots.state.series_key import COPY_KEY
from snapshots.state.state import PROGRESS_KEY
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import TIMEOUT_S, Header, Stage, header, released_due_ms, wait_until
from tests.integration.stored_buckets import delete_records
from tests.integration.stored_buckets import lanes as lanes_of

HIDDEN_S: Final = 15.0
"""Longer than a command takes on a busy machine."""

EVERY: Final[Header] = ("deliver-every", b"2s")


def _numbers(stage: Stage, topic: str, value: bytes) -> list[int]:
    found = [each for each in stage.records(topic) if each.value == value]
    dues_ms = [released_due_ms(each) for each in found]
    assert all((two - one) % 2_000 == 0 for one, two in pairwise(dues_ms))
    return [int(header(each, "delay-occurrence") or b"") for each in found]


def _create_again(stage: Stage, topic: str) -> None:
    stage.delete(topic)
    stage.create([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})])


def _began(stage: Stage, router: RouterProcess, delay: str, out: str, *, kills: bool = False) -> None:
    """Let two series run for a while, end the router, and remove the first record of one of them from the log."""
    router.start_and_wait()
    stage.send(delay, EVERY, value=b"gone")
    stage.send(delay, EVERY, value=b"there")
    wait_until(lambda: len(_numbers(stage, out, b"there")) >= 4, "four occurrences")
    wait_until(lambda: len(_numbers(stage, out, b"gone")) >= 4, "four occurrences")
    if kills:
        router.kill()
    else:
        assert router.stop() == 0
    delete_records(stage, delay, 0, 1)


@pytest.mark.parametrize(("loses", "lanes"), [("nothing", 0), ("nothing", 1), ("its progress", 0), ("all of it", 0)])
def test_they_go_on_where_they_stood(stage: Stage, loses: str, lanes: int) -> None:
    """The key comes from the state, or from its copy if the state is damaged or gone.

    A router with a lane is killed, so that the state names the lane, which serves another partition, too.
    """
    out = stage.target()
    delay = stage.delay(partitions=1 + lanes, default_target=out, recurring=True)
    with stage.router(lanes=lanes) as router:
        _began(stage, router, delay, out, kills=bool(lanes))
        assert all(lanes_of(stage, delay, 1 + lanes)) is bool(lanes)
        if loses == "its progress":
            stage.send(f"{delay}.delay-state", key=PROGRESS_KEY, value=b"damaged")
        elif loses == "all of it":
            _create_again(stage, f"{delay}.delay-state")
        before = {value: _numbers(stage, out, value) for value in (b"gone", b"there")}
        asked = router.command("start-over", f"{delay}/0")
        assert "Recurring schedules go on where they stand (2)." in asked.stdout, asked
        assert "END" not in asked.stdout
        assert router.command("start-over", f"{delay}/0", "--yes").returncode == 0
        router.start_and_wait()
        most = max(map(len, before.values()))
        wait_until(lambda: min(len(_numbers(stage, out, value)) for value in before) >= most + 3, "three more of each")
        assert router.stop() == 0
    for value in before:
        # No occurrence was released again, and no series continues twice.
        found = _numbers(stage, out, value)
        assert found == list(range(1, len(found) + 1))
    assert stage.records(f"{delay}.rejected") == []


def test_an_occurrence_behind_an_open_transaction_is_waited_for(stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out, recurring=True)
    foreign = Producer({**stage.kafka, "transactional.id": f"{stage.word}.foreign"})
    foreign.init_transactions(TIMEOUT_S)
    with stage.router() as router:
        router.start_and_wait()
        stage.send(delay, EVERY, value=b"there")
        stage.wait_records(out, 1)
        foreign.begin_transaction()
        foreign.produce(delay, b"never committed")
        assert foreign.flush(TIMEOUT_S) == 0
        # The router releases the occurrence in front of the transaction, and appends the next one behind it.
        seen = len(_numbers(stage, out, b"there"))
        wait_until(lambda: len(_numbers(stage, out, b"there")) > seen, "an occurrence")
        assert router.stop() == 0
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(router.command, "start-over", f"{delay}/0", "--yes")
            time.sleep(HIDDEN_S)
            assert not waits.done()
            foreign.abort_transaction(TIMEOUT_S)
            assert waits.result().returncode == 0
        router.start_and_wait()
        wait_until(lambda: len(_numbers(stage, out, b"there")) >= seen + 4, "more occurrences")
        assert router.stop() == 0
    found = _numbers(stage, out, b"there")
    assert found == list(range(1, len(found) + 1))


def test_who_starts_over_without_a_key_is_told_how_many_end(stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out, recurring=True)
    with stage.router() as router:
        _began(stage, router, delay, out)
        stage.send(f"{delay}.delay-state", key=PROGRESS_KEY, value=b"damaged")
        assert any(each.key == COPY_KEY for each in stage.records(f"{delay}.delay-snapshots"))
        _create_again(stage, f"{delay}.delay-snapshots")
        asked = router.command("start-over", f"{delay}/0")
        assert "RECURRING SCHEDULES END, at most 2" in asked.stdout, asked
        assert "Nothing was done" in asked.stdout
        assert router.command("start-over", f"{delay}/0", "--yes").returncode == 0
        began = len(_numbers(stage, out, b"there"))
        router.start_and_wait()
        # The first record of one series still exists: the series begins again, and its old occurrences are rejected.
        wait_until(lambda: _numbers(stage, out, b"there")[began:][:2] == [1, 2], "the series begins anew")
        time.sleep(0.5)
        assert router.stop() == 0
    rejected = stage.records(f"{delay}.rejected")
    assert {header(each, "delay-error") for each in rejected} == {b"INVALID_SCHEDULE"}
    assert {each.value for each in rejected} == {b"gone", b"there"}

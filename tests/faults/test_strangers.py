"""Tests of foreign producers and former owners."""

import time
from random import Random

import pytest
from confluent_kafka import KafkaException, Producer

from tests.faults.stage import SMALL_BUCKETS, FaultStage, settled
from tests.integration.scenario import Load, wait_until
from tests.integration.stored_buckets import lanes as lanes_of

SESSION = {"session_timeout": "2s"}


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [0, 1])
def test_a_stranger_takes_our_transactional_id(lanes: int, lone: FaultStage, rng: Random) -> None:
    """The stranger fences the router, which asks the group, finds that it owns the partition, and takes it back."""
    out = lone.target("out", 2)
    delay = lone.delay("delay", 2, default_target=out, **SMALL_BUCKETS)
    with lone.router(lanes=lanes) as router, Load(lone, [delay], rng, partitions=2, delays_ms=(0, 6_000)) as load:
        router.start_and_wait()
        for _ in range(6):
            (taken, _) = lanes_of(lone, delay, 2) if lanes else (f"{lone.group_id}.{delay}.0", "")
            stranger = Producer({**lone.kafka, "transactional.id": taken})
            stranger.init_transactions(20)
            stranger.begin_transaction()
            stranger.produce(out, b"torn", headers=[("delay-source", f"{delay}/0/0".encode())])
            time.sleep(rng.uniform(0.5, 2.0))
        load.finish()
        settled(lone)
        assert router.events("partition_interrupted"), "nobody was fenced"
        assert all(record.value != b"torn" for record in lone.records(out))
        assert router.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [0, 1])
def test_a_foreign_transaction_hangs_on_the_target_and_on_the_state(lanes: int, lone: FaultStage, rng: Random) -> None:
    """Readers of the target wait, the router does not; a transaction on the state only delays a take-over."""
    out = lone.target("out", 2)
    delay = lone.delay("delay", 2, default_target=out, **SMALL_BUCKETS)
    foreign = Producer({**lone.kafka, "transactional.id": f"{lone.word}.foreign", "transaction.timeout.ms": 60_000})
    foreign.init_transactions(20)
    with lone.router(lanes=lanes) as router, Load(lone, [delay], rng, partitions=2, delays_ms=(0, 4_000)) as load:
        router.start_and_wait()
        foreign.begin_transaction()
        for partition in (0, 1):
            foreign.produce(out, b"foreign", partition=partition)
            # Looks like a key of the state, but is aborted below, so it never becomes part of the state.
            foreign.produce(f"{delay}.delay-state", b"foreign", b"foreign", partition)
        assert foreign.flush(20) == 0
        before = router.metric(f'records_released_total{{target="{out}",topic="{delay}"}}')
        released = f'records_released_total{{target="{out}",topic="{delay}"}}'
        wait_until(lambda: router.metric(released) > before, "releases behind the foreign transaction")
        router.kill()
        router.start()
        state = f"{delay}.delay-state"
        hidden = f"an open transaction hides the end of {state}/0"
        wait_until(lambda: hidden in router.http("/readyz")[1], "a take-over that waits")
        foreign.abort_transaction(20)
        router.wait_ready()
        load.finish()
        settled(lone)
        assert router.stop() == 0


@pytest.mark.slow
def test_owners_that_were_stopped_and_go_on_later(lone: FaultStage, rng: Random) -> None:
    out = lone.target("out", 2)
    delay = lone.delay("delay", 4, default_target=out, **SMALL_BUCKETS)
    routers = [lone.router(f"r{number}", instance_id=f"r{number}", **SESSION) for number in range(2)]
    interrupted = 0
    with routers[0], routers[1], Load(lone, [delay], rng, partitions=4, delays_ms=(0, 6_000)) as load:
        for router in routers:
            router.start_and_wait()
        for turn in range(6):
            stopped = routers[turn % 2]
            stopped.pause()
            time.sleep(rng.uniform(2.5, 5.0))
            stopped.resume()
            time.sleep(rng.uniform(0.5, 2.0))
        load.finish()
        for router in routers:
            router.wait_ready()
            interrupted += len(router.events("partition_interrupted"))
        settled(lone)
        assert interrupted, "nobody was usurped while it was stopped"
        assert [router.stop() for router in routers] == [0, 0]


@pytest.mark.slow
def test_a_stranger_with_a_stale_epoch_cannot_write(lone: FaultStage, rng: Random) -> None:
    """An old owner never learned of the new one: the coordinator refuses its transaction."""
    out = lone.target()
    delay = lone.delay(default_target=out)
    zombie = Producer({**lone.kafka, "transactional.id": f"{lone.group_id}.{delay}.0"})
    zombie.init_transactions(20)
    zombie.begin_transaction()
    with lone.router() as router:
        router.start_and_wait()
        lone.send_many(delay, [[("deliver-after", b"%d" % rng.randint(0, 3_000))] for _ in range(200)])
        with pytest.raises(KafkaException):
            _write_on(zombie, out, f"{delay}/0/0")
        settled(lone)
        assert all(record.value != b"zombie" for record in lone.records(out))
        assert router.stop() == 0


def _write_on(zombie: Producer, target: str, source: str) -> None:
    for _ in range(100):
        zombie.produce(target, b"zombie", headers=[("delay-source", source.encode())])
        zombie.flush(1)
        zombie.commit_transaction(5)
        zombie.begin_transaction()

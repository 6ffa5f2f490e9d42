"""Tests that the auditor finds nothing lost, doubled, early or altered after any end of the router at any time."""

import time
from random import Random

from confluent_kafka import Consumer, Producer, TopicPartition

from index.pending.progress import Position, Progress
from snapshots.state.state import PROGRESS_KEY, encode_progress
from tests.integration.scenario import Header, Load, Stage, now_ms
from tests.integration.serving import serving

KILLS = 8


def test_kill_9_at_random_moments(stage: Stage, rng: Random) -> None:
    out = stage.target("out", 2)
    delays = [stage.delay("one", 3, default_target=out), stage.delay("two", 3, default_target=out)]
    with stage.router() as router, Load(stage, delays, rng, partitions=3) as load:
        router.start_and_wait()
        for _ in range(KILLS):
            # Between a start without group membership and the middle of a release.
            time.sleep(rng.uniform(0.3, 2.5))
            router.kill()
            router.start()
        router.wait_ready()
        load.finish()
        report = stage.settle()
        assert report.sent > 500
        assert report.rejected > 0
        assert router.stop() == 0


def test_a_torn_transaction_of_a_former_owner_is_never_seen(stage: Stage) -> None:
    with serving(stage) as (router, delay, out):
        at: Header = ("deliver-at", b"%d" % (now_ms() + 6_000))
        stage.send(delay, value=b"first")
        stage.send_many(delay, [[at]] * 20)
        stage.wait_records(out, 1)
        router.kill()

    # A router that dies or hangs just before its commit leaves this: records in the target, and progress past them.
    torn = Producer({**stage.kafka, "transactional.id": f"{stage.group_id}.{delay}.0", "linger.ms": 0})
    torn.init_transactions()
    torn.begin_transaction()
    for offset in range(1, 21):
        source = f"{delay}/0/{offset}".encode()
        torn.produce(out, b"torn", headers=[("delay-source", source)])
    progress = Progress(cursor=21, watermark=Position(now_ms() + 60_000, 20), sealed_to=21, number=99)
    torn.produce(f"{delay}.delay-state", encode_progress(progress, "?"), PROGRESS_KEY, 0)
    assert torn.flush(10) == 0
    assert written(stage, out) > 20, "the torn records must be in the log for this test to mean anything"

    with stage.router() as router:
        router.start_and_wait()
        report = stage.settle()
        assert report.released_once == 21
        assert all(record.value != b"torn" for record in stage.records(out))
        assert router.stop() == 0


def written(stage: Stage, topic: str) -> int:
    """Return the end of the log, including open and aborted transactions."""
    consumer = Consumer({**stage.kafka, "group.id": "none", "isolation.level": "read_uncommitted"})
    edges = consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)
    consumer.close()
    assert edges is not None
    return int(edges[1])

"""Plays the table of OPERATIONS about topics whose only replica is lost for good, with three brokers.

The topics lie on one broker, which is killed. Its disk is as good as lost once the topics are deleted, so it comes back
as its own successor.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import NewTopic

from tests.docs.command_lines import commands
from tests.docs.procedures import DOCUMENT, Procedure
from tests.faults.stage import FaultStage, Proxied
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Header, Stage, now_ms, wait_until
from tests.integration.stored_buckets import state

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SECTION: Final = "A lost broker"
LOST: Final = 3
"""The number of the broker that is lost."""

SOON_MS: Final = 100
FAR_MS: Final = 60_000
BESIDE: Final = {"transaction_timeout": "20s", "session_timeout": "6s"}


class FragileStage(FaultStage):
    """A stage whose fragile topics have one replica, on the broker that is lost."""

    fragile: frozenset[str] = frozenset()

    def create(self, topics: Any) -> None:
        """Create topics, the fragile ones on one broker."""
        for each in topics:
            if each.topic in self.fragile:
                Stage.create(self, [NewTopic(each.topic, 1, replica_assignment=[[LOST]], config=each.config)])
            else:
                super().create([each])


@pytest.fixture
def fragile(three_nodes: Proxied, replicated: FaultStage, tmp_path: Path) -> Iterator[FragileStage]:
    """Yield a stage on three brokers; afterwards all of them run."""
    stage = FragileStage(three_nodes, tmp_path / "fragile")
    yield stage
    stage.print_logs()


def remedy(row: str) -> list[str]:
    """Return the commands that the table names for a topic, without their arguments."""
    _, _, text = DOCUMENT.read_text(encoding="utf-8").partition(f"## {SECTION}")
    (cell,) = re.findall(rf"^\| {re.escape(row)} \|[^|]*\|([^|]*)\|$", text, re.MULTILINE)
    return [" ".join(words[:2]) for span in re.findall(r"`([^`]+)`", cell) for words in commands(span)]


def due(after_ms: int) -> Header:
    return "deliver-at", b"%d" % (now_ms() + after_ms)


def lose(running: Proxied, stage: FragileStage, router: RouterProcess) -> None:
    """Lose the broker, delete the topics that it alone had, and let a successor take its place."""
    node = running.cluster.nodes[LOST - 1]
    node.kill()
    # The tool takes a pattern.
    names = {"orders.delay": "|".join(stage.fragile), "localhost:9092": stage.bootstrap}
    steps = Procedure(SECTION, router.config, names)
    steps.run("kafka-topics.sh --bootstrap-server localhost:9092 --describe", until=stage.word)
    steps.skip("delay-router status")
    steps.run("kafka-topics.sh --bootstrap-server localhost:9092 --delete")
    steps.finish()
    wait_until(lambda: not stage.fragile & stage.admin.list_topics(timeout=10).topics.keys(), "they are deleted")
    node.start()
    running.cluster.wait_ready()
    wait_until(lambda: not stage.behind(), "the successor has caught up")


def run(router: RouterProcess, *arguments: str) -> None:
    done = router.command(*arguments)
    assert done.returncode == 0, f"{arguments} ended with {done.returncode}:\n{done.stdout}{done.stderr}"


def values(stage: Stage, topic: str) -> Counter[bytes | None]:
    return Counter(record.value for record in stage.records(topic))


def test_of_a_delay_topic_what_is_sent_again_is_delivered(three_nodes: Proxied, fragile: FragileStage) -> None:
    fragile.fragile = frozenset({f"{fragile.word}.delay"})
    out = fragile.target()
    delay = fragile.delay(default_target=out)
    with fragile.router(**BESIDE) as router:
        router.init()
        router.start_and_wait()
        for number in range(20):
            fragile.post(delay, due(FAR_MS if number % 2 else SOON_MS), value=b"%d" % number)
        fragile.flush()
        fragile.wait_records(out, 10)
        lose(three_nodes, fragile, router)
        assert remedy("delay topic") == ["delay-router init", "delay-router start-over"]
        run(router, "init")
        run(router, "start-over", f"{delay}/0", "--yes")
        for number in range(1, 20, 2):
            fragile.send(delay, due(SOON_MS), value=b"%d" % number)
        fragile.wait_records(out, 20)
        router.wait_ready()
        assert router.stop() == 0
    assert values(fragile, out) == Counter(b"%d" % number for number in range(20))


def test_of_the_other_topics_nothing_pending_is_lost(three_nodes: Proxied, fragile: FragileStage) -> None:
    """State and snapshots are left to the tests of ``rebuild``."""
    out, gone = f"{fragile.word}.out", f"{fragile.word}.gone"
    delay, policies = f"{fragile.word}.delay", f"__{fragile.word}.policies"
    beside = [f"{delay}.{name}" for name in ("rejected", "receipts")]
    fragile.fragile = frozenset({gone, policies, *beside})
    fragile.target()
    fragile.target("gone")
    fragile.create([NewTopic(policies, 1, config={"cleanup.policy": "compact"})])
    fragile.delay(default_target=out, allowed_targets=[gone], seal_age="1s", seal_records=50, seal_beyond="0ms")
    with fragile.router(policies_topic=policies, **BESIDE) as router:
        router.init()
        router.start_and_wait()
        run(router, "policy", "set", f"topic/{delay}", "max_delay=1h")
        for number in range(100):
            fragile.post(delay, due(FAR_MS), ("deliver-id", b"%d" % number), value=b"%d" % number)
        fragile.post(delay, ("deliver-after", b"never"), value=b"rejected")
        fragile.post(delay, ("deliver-to", gone.encode()), value=b"delivered")
        fragile.flush()
        fragile.wait_records(gone, 1)
        fragile.wait_records(f"{delay}.rejected", 1)
        wait_until(lambda: sum(each.entries for each in state(fragile, delay).buckets) == 100, "all are sealed")
        lose(three_nodes, fragile, router)
        for row in ("`.rejected`, `.receipts`", "policies"):
            assert remedy(row)[0] == "delay-router init"
        run(router, "init", "--create-targets")
        run(router, "policy", "set", f"topic/{delay}", "max_delay=1h")
        fragile.send(delay, ("deliver-after", b"never"), value=b"rejected again")
        fragile.send(delay, ("deliver-to", gone.encode()), value=b"delivered again")
        fragile.send(delay, ("deliver-cancel", b"7"), value=b"")
        assert [each.value for each in fragile.wait_records(gone, 1)] == [b"delivered again"]
        assert [each.value for each in fragile.wait_records(f"{delay}.rejected", 1)] == [b"rejected again"]
        fragile.wait_records(f"{delay}.receipts", 1)
        fragile.wait_records(out, 99, FAR_MS / 1_000 + 60)
        router.wait_ready()
        assert router.stop() == 0
    assert values(fragile, out) == Counter(b"%d" % number for number in range(100) if number != 7)

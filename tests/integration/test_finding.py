"""Tests that a search finds exactly the pending records, with consumers that have read the same topics before."""

import pytest
from confluent_kafka.admin import NewTopic

from index.errors import DelayRouterError, RefusedError
from sidecar.config import model as configuration
from sidecar.kafka.client import admin as cluster
from sidecar.operations.finding.finder import Finder
from sidecar.operations.finding.wanted import PagePlace, ScheduleFilter
from tests.integration.readiness import partitions
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import APPEND_TIME, Stage, wait_until

HOUR = ("deliver-after", b"PT1H")
SUFFIXES = ("", ".delay-state", ".delay-snapshots", ".rejected", ".receipts")


class Looking:
    """Asks one finder for all pages of one schedule."""

    def __init__(self, router: RouterProcess, delay: str) -> None:
        config = configuration.load(router.config, {})
        self._topic = config.require_delay_topic(delay)
        self.finder = Finder(config, cluster.connect(config))

    def __call__(self, deliver_id: bytes | None = None) -> list[str]:
        found, place = list[str](), PagePlace(0)
        while True:
            page = self.finder.page(self._topic, 2, ScheduleFilter(self._topic.name, deliver_id), place, 1)
            found += [f"{self._topic.name}/{each.partition}/{each.offset}" for each in page.schedules]
            if page.next_from is None:
                return sorted(found)
            place = page.next_from


def test_sealed_cancelled_and_sent_meanwhile(stage: Stage) -> None:
    delay = stage.delay(partitions=2, default_target=stage.target(), max_delay="2h", seal_records=3, seal_age="300ms")
    with stage.router() as router:
        router.start_and_wait()
        look = Looking(router, delay)
        assert look() == []
        places = [stage.send(delay, HOUR, ("deliver-id", b"%d" % number), partition=number % 2) for number in range(8)]
        assert [look(b"%d" % number) for number in range(8)] == [[place] for place in places]
        wait_until(lambda: all(_sealed_to(router, delay, each) == 4 for each in (0, 1)), "all are sealed")
        assert [look(b"%d" % number) for number in range(8)] == [[place] for place in places]
        assert look() == sorted(places)
        stage.send(delay, ("deliver-cancel", b"3"), partition=1)
        stage.wait_records(f"{delay}.receipts", 1)
        again = stage.send(delay, HOUR, ("deliver-id", b"4"), partition=0)
        assert [look(b"3"), look(b"4"), look(b"5")] == [[], sorted([places[4], again]), [places[5]]]
        assert router.stop() == 0
        assert [look(b"3"), look(b"4"), look(b"5")] == [[], sorted([places[4], again]), [places[5]]]
        look.finder.close()
        assert look(b"5") == [places[5]], "once more, with new ones"


def test_a_topic_that_was_created_again(stage: Stage) -> None:
    delay = stage.delay(partitions=2, default_target=stage.target(), max_delay="2h")
    look = Looking(stage.router(), delay)
    old = stage.send(delay, HOUR, ("deliver-id", b"old"))
    assert look(b"old") == [old]
    stage.delete(delay)
    with pytest.raises(RefusedError, match="does not exist"):
        look(b"old")
    stage.create([NewTopic(delay, 2, 1, config=APPEND_TIME)])
    new = stage.send(delay, HOUR, ("deliver-id", b"new"))
    assert new == old, "offsets do not tell them apart"
    with pytest.raises(DelayRouterError, match="its state is about the old one"):
        look(b"old")
    stage.delete(*(f"{delay}{suffix}" for suffix in SUFFIXES))
    stage.delay(partitions=2, default_target=stage.targets[0], max_delay="2h")
    new = stage.send(delay, HOUR, ("deliver-id", b"new"))
    assert [look(b"old"), look(b"new"), look()] == [[], [new], [new]]
    look.finder.close()


def _sealed_to(router: RouterProcess, delay: str, partition: int) -> int:
    return int(partitions(router)[f"{delay}/{partition}"]["sealed_to"])

"""Tests that a search finds exactly the pending records, with consumers that have read the same topics before."""

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from index.errors import DelayRouterError, RefusedError
from index.pending.progress import Position
from sidecar.config import model as configuration
from sidecar.kafka.client import admin as cluster
from sidecar.operations.finding.finder import Finder
from sidecar.operations.finding.wanted import PagePlace, ScheduleFilter, SchedulePage
from tests.integration.readiness import partitions
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import APPEND_TIME, Stage, wait_until

HOUR = ("deliver-after", b"PT1H")
SUFFIXES = ("", ".delay-state", ".delay-snapshots", ".rejected", ".receipts")


class Looking:
    """Asks one finder for all pages of one schedule, and for the content of a record."""

    def __init__(self, router: RouterProcess, delay: str, partitions: int = 2) -> None:
        self.partitions = partitions
        config = configuration.load(router.config, {})
        self._topic = config.require_delay_topic(delay)
        self.admin = cluster.connect(config)
        self.finder = Finder(config, self.admin)

    def content(self, offset: int, due_ms: int = 0) -> bytes | None:
        """Return the value of a record of partition 0; None where it is not found."""
        found = self.finder.record(self._topic, Position(due_ms, offset), 0)
        return None if found is None else found.value

    def page(self, place: PagePlace, most: int, deliver_id: bytes | None = None) -> SchedulePage:
        """Return one page."""
        return self.finder.page(self._topic, self.partitions, ScheduleFilter(self._topic.name, deliver_id), place, most)

    def __call__(self, deliver_id: bytes | None = None) -> list[str]:
        found, place = list[str](), PagePlace(0)
        while True:
            page = self.page(place, 1, deliver_id)
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


def test_the_content_of_a_record_that_only_a_segment_has(stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out, max_delay="2h", seal_records=3, seal_age="300ms", placement="inline")
    with stage.router() as router:
        router.start_and_wait()
        look = Looking(router, delay, partitions=1)
        for number in range(4):
            stage.send(delay, HOUR, ("n", b"%d" % number), value=b"%d" % number)
        wait_until(lambda: _sealed_to(router, delay, 0) == 4, "all are sealed")
        assert [look.content(offset) for offset in range(5)] == [b"0", b"1", b"2", b"3", None]
        look.admin.delete_records([TopicPartition(delay, 0, 4)])[TopicPartition(delay, 0, 4)].result()
        assert look.content(2) is None, "the due time tells the segment"
        due_ms = {each.offset: each.due_ms for each in look.page(PagePlace(0), 9).schedules}
        assert [look.content(offset, due_ms[offset]) for offset in range(4)] == [b"0", b"1", b"2", b"3"]
        look.finder.close()


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

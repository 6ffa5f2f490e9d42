"""Tests of the requests of a job to the cluster, against a modelled admin client."""

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from spark_backfill import cluster
from spark_backfill.cluster import LogRange, group_members, log_ranges


class Offset:
    def __init__(self, offset: int) -> None:
        self.offset = offset


class DescribedMember(NamedTuple):
    client_id: str
    host: str


class DescribedGroup(NamedTuple):
    members: list[DescribedMember]


class Admin:
    """Fails with these errors, one for each request, and then answers."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.looks = 0

    def list_topics(self, timeout: float) -> None:
        del timeout
        self.looks += 1

    def list_offsets(self, asked: Iterable[Any], **_: object) -> dict[Any, Future[Offset]]:
        made: dict[Any, Future[Offset]] = {place: Future() for place in asked}
        error = self.errors.pop(0) if self.errors else None
        for place, future in made.items():
            if error is None:
                future.set_result(Offset(10 + place.partition))
            else:
                future.set_exception(KafkaException(KafkaError(error)))
        return made

    def describe_consumer_groups(self, names: Iterable[str], **_: object) -> dict[str, Future[DescribedGroup]]:
        made: dict[str, Future[DescribedGroup]] = {name: Future() for name in names}
        for future in made.values():
            if self.errors:
                future.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
            else:
                future.set_result(DescribedGroup([DescribedMember("router", "/10.0.0.1")]))
        return made


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ASK_AGAIN_AFTER_S", 0.0)


def ranges(admin: Admin, *partitions: int) -> dict[int, LogRange]:
    return log_ranges(cast("AdminClient", admin), "t", partitions)


def test_offsets_are_asked_for_again_when_the_leader_has_changed() -> None:
    admin = Admin(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE)
    assert ranges(admin, 0, 1) == {0: LogRange(10, 10), 1: LogRange(11, 11)}
    assert admin.looks == 2


def test_an_error_that_does_not_pass_ends_the_job_at_once() -> None:
    admin = Admin(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        ranges(admin, 0)
    assert admin.looks == 0


def test_a_partition_without_a_leader_ends_the_job_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ASK_AGAIN_WITHIN_S", 0.05)
    with pytest.raises(KafkaException):
        ranges(Admin(*[KafkaError.LEADER_NOT_AVAILABLE] * 100_000), 0)


def test_no_partitions_have_no_offsets() -> None:
    assert ranges(Admin()) == {}


def test_a_group_is_described_again_when_its_coordinator_has_changed() -> None:
    admin = Admin(KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    assert group_members(cast("AdminClient", admin), "g") == ["router on /10.0.0.1"]
    assert admin.looks == 2


def test_a_group_that_is_unknown_has_no_members() -> None:
    admin = Admin(KafkaError.GROUP_ID_NOT_FOUND)
    assert group_members(cast("AdminClient", admin), "g") == []
    assert admin.looks == 0

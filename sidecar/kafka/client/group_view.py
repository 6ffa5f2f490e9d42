"""The members of a consumer group and their partitions, as the coordinator knows them.

``AdminClient.describe_consumer_groups`` would tell the same, but librdkafka 2.16 aborts the process when such a request
has timed out and the coordinator comes back (librdkafka issue 4605). ``list_groups`` survives paused and killed brokers
(measured). It asks every broker, and takes the group from its coordinator.
"""

import struct
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from confluent_kafka.admin import AdminClient

from sidecar.kafka.client.admin import REQUEST_TIMEOUT_S
from sidecar.kafka.client.membership import Partition

STABLE: Final = "Stable"
"""The state of a group in which every member has its assignment."""

_COUNT_AT: Final = 2
_COUNT_BYTES: Final = 4
_FIRST_AT: Final = _COUNT_AT + _COUNT_BYTES
_LENGTH_BYTES: Final = 2


class ViewedMember(NamedTuple):
    """A member of a group: the topics that it subscribes to, and its partitions."""

    topics: frozenset[str]
    partitions: frozenset[Partition]


class GroupView(NamedTuple):
    """A stable group: its members by id."""

    members: dict[str, ViewedMember]

    def without_owner(self, partitions: frozenset[Partition]) -> frozenset[Partition]:
        """Return those of ``partitions`` that the group assigns to no member."""
        return partitions.difference(*(each.partitions for each in self.members.values()))

    def first_of(self, partitions: Collection[Partition]) -> str | None:
        """Return the first id of a member that subscribes to a topic of ``partitions``; None without such a member."""
        topics = {topic for topic, _ in partitions}
        return min((name for name, each in self.members.items() if each.topics & topics), default=None)


def view_group(admin: AdminClient, group_id: str) -> GroupView | None:
    """Return the group; None if it does not exist or is about to assign partitions.

    Raise KafkaException if a broker does not answer.
    """
    stable = [each for each in _groups(admin, group_id) if each.state == STABLE]
    return GroupView({each.id: _member(each) for each in stable[0].members}) if stable else None


def member_count(admin: AdminClient, group_id: str) -> int:
    """Return the number of members of the group in any state, 0 if it does not exist or may not be described.

    Raise KafkaException if a broker does not answer.
    """
    return sum(len(each.members) for each in _groups(admin, group_id))


def _groups(admin: AdminClient, group_id: str) -> list[Any]:
    # The type hints of the package call every field None.
    return admin.list_groups(group_id, timeout=REQUEST_TIMEOUT_S)


def _member(told: Any) -> ViewedMember:
    return ViewedMember(parse_subscription(told.metadata), parse_assignment(told.assignment))


def parse_subscription(metadata: bytes) -> frozenset[str]:
    """Parse the topics in the metadata of a member (ConsumerProtocolSubscription of Kafka).

    All numbers are big-endian::

        version int16 | topics int32 | for each: length int16, name | ...
    """
    found, at = set(), _FIRST_AT
    for _ in range(_count_at(metadata, _COUNT_AT)):
        name, at = _name_at(metadata, at)
        found.add(name)
    return frozenset(found)


def parse_assignment(assignment: bytes) -> frozenset[Partition]:
    """Parse the assignment of a member (ConsumerProtocolAssignment of Kafka).

    All numbers are big-endian::

        version int16 | topics int32 | for each: length int16, name | partitions int32, number int32 ... | user data
    """
    found, at = set(), _FIRST_AT
    for _ in range(_count_at(assignment, _COUNT_AT)):
        name, at = _name_at(assignment, at)
        count = _count_at(assignment, at)
        found |= {(name, number) for number in struct.unpack_from(f">{count}i", assignment, at + _COUNT_BYTES)}
        at += _COUNT_BYTES * (1 + count)
    return frozenset(found)


def _count_at(raw: bytes, at: int) -> int:
    """Parse a count; a member without an assignment has no bytes."""
    return int.from_bytes(raw[at : at + _COUNT_BYTES])


def _name_at(raw: bytes, at: int) -> tuple[str, int]:
    """Parse a name; return it with the place behind it."""
    start = at + _LENGTH_BYTES
    end = start + int.from_bytes(raw[at:start])
    return raw[start:end].decode(), end

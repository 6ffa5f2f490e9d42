"""The members of a consumer group and their partitions, as the coordinator knows them.

``AdminClient.describe_consumer_groups`` would tell the same, but librdkafka 2.16 aborts the process when such a request
has timed out and the coordinator comes back (librdkafka issue 4605). ``list_groups`` survives paused and killed brokers
(measured). It asks every broker, and takes the group from its coordinator.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from confluent_kafka.admin import AdminClient

from sidecar.kafka.client.admin import REQUEST_TIMEOUT_S
from sidecar.kafka.client.membership import Partition

STABLE: Final = "Stable"
"""The state of a group in which every member has its assignment."""

_VERSION_BYTES: Final = 2


class GroupView(NamedTuple):
    """A stable group: the partitions of each member by its id."""

    assigned: dict[str, frozenset[Partition]]

    def without_owner(self, partitions: frozenset[Partition]) -> frozenset[Partition]:
        """Return those of ``partitions`` that the group assigns to no member."""
        return partitions.difference(*self.assigned.values())


def view_group(admin: AdminClient, group_id: str) -> GroupView | None:
    """Return the group; None if it does not exist or is about to assign partitions.

    Raise KafkaException if a broker does not answer.
    """
    # The type hints of the package call every field None.
    groups: list[Any] = admin.list_groups(group_id, timeout=REQUEST_TIMEOUT_S)
    stable = [each for each in groups if each.state == STABLE]
    return GroupView({each.id: parse_assignment(each.assignment) for each in stable[0].members}) if stable else None


def parse_assignment(assignment: bytes) -> frozenset[Partition]:
    """Parse the assignment of a member (ConsumerProtocolAssignment of Kafka); a member without one has no bytes.

    All numbers are big-endian::

        version int16 | topics int32 | for each: length int16, name | partitions int32, number int32 ... | user data
    """
    return frozenset(_partitions(assignment)) if assignment else frozenset()


def _partitions(assignment: bytes) -> Iterator[Partition]:
    (topics,), at = struct.unpack_from(">i", assignment, _VERSION_BYTES), _VERSION_BYTES + 4
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", assignment, at)
        name, at = assignment[at + 2 : at + 2 + length].decode(), at + 2 + length
        (count,) = struct.unpack_from(">i", assignment, at)
        for number in struct.unpack_from(f">{count}i", assignment, at + 4):
            yield name, number
        at += 4 + 4 * count

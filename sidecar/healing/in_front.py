"""Which of our open transactions are the first ones on their partitions, and which lie behind somebody else's."""

import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka.admin import AdminClient

from index.errors import NotYetError
from sidecar.healing.hidden import PAUSE_S, Ends, Found, ends_of
from sidecar.kafka.admin import Place

FOREIGN_WITHIN_S: Final = 2.0
"""So long for somebody else's transaction that lies in front of ours, before the take-over is tried anew."""


def split(
    admin: AdminClient, others: Mapping[Place, Ends], found: Mapping[Place, list[Found]]
) -> tuple[list[Place], list[Place]]:
    """Where a transaction of ours is the first that is open, and where somebody else's hides whether ours is.

    What is settled meanwhile is in neither.
    """
    deadline_s = time.monotonic() + FOREIGN_WITHIN_S
    in_front: list[Place] = []
    left = dict(others)
    while left:
        for place, ends in ends_of(admin, left).items():
            last = [each for each in found[place] if not each.is_of_second][-1]
            # Behind a foreign one: markers are only lost while a partition has no leader.
            same_leader = last.leader_epoch is not None and last.leader_epoch == ends.leader_epoch
            is_first = ends.settled in {each.offset for each in found[place]}
            if is_first:
                in_front.append(place)
            if is_first or same_leader or ends.settled > last.offset:
                del left[place]
        if left and time.monotonic() > deadline_s:
            break
        time.sleep(PAUSE_S if left else 0)
    return in_front, list(left)


def wait_for_others(place: Place, found: list[Found]) -> NotYetError:
    """What to say where somebody else's transaction lies in front of these."""
    return NotYetError(
        f"an open transaction of somebody else on {place[0]}/{place[1]} hides whether offset"
        f" {found[-1].offset} there, of this partition, is committed; should it last longer than"
        " transactions may: OPERATIONS, 'A transaction that nobody ends'"
    )

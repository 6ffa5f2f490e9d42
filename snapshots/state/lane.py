"""The lane that a progress record names: a transactional producer that several delay partitions of a process share.

The state of a partition is written by one producer at a time. That is the producer of the partition's own transactional
id, unless the progress names a lane. Then the transactions of the lane write the state, and the own id serves as a lock
of take-overs (:mod:`sidecar.engine.ownership.lanes`).

A progress record that names a lane has a kind of its own, so that a router that knows no lanes refuses the partition
instead of fencing the wrong producer.
"""

from typing import NamedTuple

from index.errors import FormatError
from snapshots.proto import state_pb2


class LaneName(NamedTuple):
    """The name of a lane: its transactional id, and how many producers of the process have had this id."""

    transactional_id: str
    number: int


def lane_message(lane: LaneName) -> state_pb2.Lane:
    """Encode the name as the message within the progress."""
    return state_pb2.Lane(transactional_id=lane.transactional_id, number=lane.number)


def lane_of(message: state_pb2.Lane) -> LaneName:
    """Decode the name; raise FormatError if it names no producer."""
    lane = LaneName(message.transactional_id, message.number)
    if not lane.transactional_id or lane.number < 1:
        raise FormatError(f"progress names a lane without a transactional id, or a producer of no number: {lane}")
    return lane

"""Who may write the state of a partition: the producer of its own transactional id, or a lane.

A lane is a transactional producer that several partitions of a process share: one transaction carries the due records,
the state and the progress of all partitions that have something to write. The progress of a partition names its lane
(:mod:`snapshots.state.lane`). The own id remains the lock of each take-over::

    take-over   fence the own id ──► read the state ──► names it a lane?
                    ▲                     ▲                  │ yes                      │ no, or the lane has ended
                    │                     └── fence it ◄─────┘                          ▼
                    │                                                     write `lane: mine` by the own id
                    │                                                     read it, so that it is settled
    serve           │                                                     transactions of the lane
    give back       └────────────────────────────────────────────────────── write `lane: none` by the lane

* Two routers that take over at the same time both fence the own id. The later one fences the earlier one, whose note
  then fails, or was committed before, so that the later one reads it and fences the lane of the earlier one.
* The note is read again before the lane writes. If the brokers have lost the marker of its transaction, the end of the
  state is hidden, and the owner must stop like any other: an operator who ends that transaction would not learn of the
  lane, and could not fence it.
* An owner that was cut off fences nobody, and its lane is fenced by the next owner. The other partitions of that lane
  are taken over anew.
* A lane that loses its producer ends for all of its partitions. Its successor of the same id has a higher number.
* An orderly end gives the state back, so that no fence disturbs the other partitions of the lane, and a router that
  knows no lanes may take over.

So partitions may join and leave a lane one by one, and a partition that holds up others can be served by itself. The
state, and the assignment of partitions by the group, are those of a router without lanes.

Rejected: a lane as a partition of the state topic. It costs one state partition for several delay partitions, so its
number can only be changed by moving all states; the group assigns whole lanes; and a damaged partition has to be cut
out of a state that it shares. A state partition of its own costs a transaction one more marker.
"""

from typing import Protocol

from index.errors import NotYetError
from sidecar.engine.ownership.origin import Origin
from sidecar.engine.release.transaction import Transactions
from snapshots.state.lane import LaneName


class StateWriters(Protocol):
    """The port to the lanes that write the state of a partition."""

    def lane(self) -> LaneName | None:
        """Read the state topic to its end, and return the lane that may write it, if it names one.

        Raise NotYetError if an open transaction hides the end.
        """

    def end(self, lane: LaneName) -> bool:
        """Fence a lane, and say whether it could write until now.

        Leave a lane alone that is known to have ended, or that this process serves other partitions with.
        """


class SharedLane(Protocol):
    """The lane that a partition has joined for one ownership."""

    @property
    def name(self) -> LaneName:
        """The name that the progress has while the lane writes the state."""

    def transactions(self, origin: Origin) -> Transactions:
        """Return the port that writes in transactions of the lane; the producer of the own id is thrown away."""


def require_noted(standing: StateWriters, name: LaneName) -> None:
    """Raise NotYetError if the next owner would not read this name in the state."""
    found = standing.lane()
    if found != name:
        raise NotYetError(f"another router has taken over: the state names {found}, and not {name}")


def end_former(standing: StateWriters) -> None:
    """Fence the lane that the state names, and read the state again, until no lane of another owner can write it."""
    while (lane := standing.lane()) is not None and standing.end(lane):
        pass

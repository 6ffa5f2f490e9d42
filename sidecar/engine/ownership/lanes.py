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
* A lane that loses its producer ends for all of its partitions. Its successor of the same id has a higher number. If
  the last transaction of the lane does not end, the successor has another id, and the process itself need not fence the
  former one (:mod:`sidecar.kafka.writing.lanes`).
* An orderly end gives the state back, so that no fence disturbs the other partitions of the lane, and a router that
  knows no lanes may take over.

So partitions may join and leave a lane one by one, and a partition that holds up others can be served by itself. The
state, and the assignment of partitions by the group, are those of a router without lanes.

Two groups of routers have different own ids for one partition. That is a mistake, or a change of ``group_id``, and must
not deliver a record twice. So each group has a claim in the state (:mod:`snapshots.state.claim`), and a take-over ends
with a *last read* of the settled state. That read names the own claim, no other group that was not fenced behind the
own claim, and no lane of another owner that may write::

    fence the own id ──► read the state ──► names the own claim? ──no──► fence the others, write the claim by the own id
                             ▲  ▲                 │ yes                                          │
                             │  └─────────────────┼──────────────────────────────────────────────┘
                             └── fence them ◄─yes─┴ names other groups? ──no──► first transaction, removes their claims

A claim of a group is written by the own id of that group alone, and removed alone by the first transaction of another
group, which has fenced that id before its own last read. Where the own claim stands from an earlier ownership, and no
other, a take-over costs no request. *Two ownerships A and B of different groups never both write after their last
reads:* let A read last before B does, and suppose first that A's claim stands when B reads.

* B has fenced the own id of A's group, behind its own claim. If A had begun before that, A is fenced before B reads,
  and B reads all that A wrote.
* If A began later, B's claim stood before A read. Either it stands when A reads: then A has fenced B. Or a third owner
  has removed it: that owner fenced B's id, and if it did so after B began, B is fenced. If it did so earlier, B has
  found its claim missing and written it again. It counts only fences behind that, which are later than A's last read.

Suppose now that C was the first to remove A's claim in between. If C fenced A's id after A began, A is fenced before B
reads. If it did so earlier, A and C are a pair as above, of which one had written before the other read last: where C
reads after A, A's claim stands then. Where C reads before A, C's claim stands, so that A fences C before C removes
anything, or a fourth owner has removed it in turn, and the same holds of that owner. Each step goes back in time, so
the chain ends.

* An owner that was fenced by another group refuses the partition for a while (``Limits.yield_s``), so that two groups
  do not fence each other all the time, and people hear of it. An owner that is new to the partition does not: a change
  of ``group_id`` needs no wait.
* The fence of another group takes the right to its transactional ids. It is tried before the own claim is written, so
  that a group without the right does not hold up the other one.
* The progress names the group of the last owner, which counts as a claim. So nothing that matters is lost with the
  beginning of a state.
* A router of a version without claims refuses a state that has one. Where such a router still serves, its id is not
  known, and a router of another group does not fence it.

Rejected: an own id without the name of the group. Rights are granted on ids that begin with that name, and routers of
earlier versions could not be fenced. Rejected: asking the cluster for members of the other group. A router that hangs
is no member, and the client aborts the process at a late answer (:mod:`sidecar.kafka.client.membership`).

Rejected: a lane as a partition of the state topic. It costs one state partition for several delay partitions, so its
number can only be changed by moving all states; the group assigns whole lanes; and a damaged partition has to be cut
out of a state that it shares. A state partition of its own costs a transaction one more marker.
"""

from collections.abc import Sequence
from typing import Protocol

from index.errors import NotYetError, RefusedError
from sidecar.engine.context import PartitionContext
from sidecar.engine.ownership.origin import Origin
from sidecar.engine.release.transaction import Transactions
from snapshots.state.lane import LaneName


class StateWriters(Protocol):
    """The port to the lanes and groups that write the state of a partition."""

    def lane(self) -> LaneName | None:
        """Read the state topic to its end, and return the lane that may write it, if it names one.

        Raise NotYetError if an open transaction hides the end.
        """

    def end(self, lane: LaneName) -> None:
        """Fence a lane, unless it is known to have ended, or this process serves other partitions with it."""

    def groups(self) -> frozenset[str]:
        """Return the groups with a claim in the state that ``lane`` has read."""

    def claim(self, group: str) -> None:
        """Write the claim of the own group by the own id, and commit it."""

    def end_group(self, group: str) -> None:
        """Fence the own id of another group; raise RefusedError if that is not allowed."""


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
    """Fence the lane that the state names, and read the state again, until it names the same lane once more.

    A lane is always read twice, even if it has ended when this take-over comes to fence it. Another partition of this
    process may have fenced it after the first read, and until then the lane may have written.
    """
    ended: LaneName | None = None
    while (lane := standing.lane()) not in (None, ended):
        standing.end(lane)
        ended = lane


def settle(standing: StateWriters, own: str, fenced: set[str]) -> bool:
    """Do one step to be the only group that writes the state: fence the other groups, or write the own claim.

    Say whether the step has changed anything: then the state must be read again. ``fenced`` has the groups that were
    fenced behind the claim, for the next step.
    """
    named = standing.groups()
    others = sorted(named - {own})
    if own in named:
        left = [group for group in others if group not in fenced]
        for group in left:
            standing.end_group(group)
            fenced.add(group)
        return bool(left)
    # A group without the right to fence the others writes no claim, which would hold up the others.
    for group in others:
        standing.end_group(group)
    standing.claim(own)
    fenced.clear()
    return True


class Claims:
    """The claim of one group on one partition, by one worker; it outlives the ownerships of that worker."""

    def __init__(self, context: PartitionContext) -> None:
        self._context = context
        self._has_claimed = False
        self._yields_until_s: float | None = None
        self.fenced: set[str] = set()
        """The other groups that this take-over has fenced behind its claim."""

    def begin(self) -> None:
        """Begin a take-over."""
        self.fenced = set()

    def settle(self, standing: StateWriters) -> bool:
        """Do one step of a take-over, as the function ``settle`` does.

        Raise RefusedError with the way out while another group has the partition.
        """
        own, named = self._context.group_id, standing.groups()
        if self._has_claimed and own not in named and named:
            self._yield_to(sorted(named))
        has_changed = settle(standing, own, self.fenced)
        if not has_changed:
            # Not before: the last transaction of a group that is fenced in this take-over may still remove the claim.
            self._has_claimed, self._yields_until_s = True, None
        return has_changed

    def _yield_to(self, others: Sequence[str]) -> None:
        now_s = self._context.clock.running_s()
        if self._yields_until_s is None:
            self._yields_until_s = now_s + self._context.limits.yield_s
        if now_s < self._yields_until_s:
            name = self._context.name
            raise RefusedError(
                f"routers of group {', '.join(others)} have taken {name}/{self._context.partition} over from this"
                f" group, {self._context.group_id}. Two groups must not serve one delay topic. They fence each other,"
                " so that nothing is delivered twice, but each interrupts the other. Stop the routers of one group, or"
                f" take {name} out of their configuration. If the other group is stopped, this router goes on by"
                f" itself, at most {self._context.limits.yield_s:.0f} s after it was fenced"
            )

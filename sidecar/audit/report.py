"""What an audit has counted, and the line that says it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

_ONLY_WHERE_ANY: Final = (
    *("cancelled", "replaced", "moved", "answered", "pending", "altered", "wrong_target", "foreign", "unreadable"),
    *("create_time", "cancelled_but_left", "answered_twice", "moved_to_nowhere"),
)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What became of the records sent.

    ``sent`` is the sum of ``released_once``, ``rejected``, ``pending``, ``duplicated``, ``lost``, and these four:

    * ``cancelled``, ``replaced``, ``moved``: named so in one receipt, and released nowhere. What takes the place of one
      that was moved is a record of its own.
    * ``answered``: a control that is no schedule itself, with its one receipt.

    A control without its receipt is ``lost``, one with two is ``duplicated``, and so is what has left although it is
    named in a receipt. The others count copies, of which a record may have several:

    * ``early``: appended before the due time.
    * ``altered``: key, value or user headers differ from what was sent; or a receipt is not the one of its control.
    * ``wrong_target``: in a topic the record did not name.
    * ``foreign``: the origin that is named is not in the delay topics.
    * ``unreadable``: released, although this reader cannot work out when it was due.
    * ``create_time``: released to a topic without append times; its punctuality is the router's own word.
    * ``cancelled_but_left``: named in a receipt, and released or rejected all the same.
    * ``answered_twice``: a control with more than one receipt.
    * ``moved_to_nowhere``: moved, as a receipt says, and no record stands for it, although it is due again.

    And, to look into it:

    * ``lateness_ms``: sorted; append time minus due time, or minus the time of sending where that was later.
    * ``samples``: per count, a line for each of the first offenders.
    """

    sent: int
    released_once: int
    rejected: int
    pending: int
    duplicated: int
    lost: int
    cancelled: int = 0
    replaced: int = 0
    moved: int = 0
    answered: int = 0
    early: int = 0
    altered: int = 0
    wrong_target: int = 0
    foreign: int = 0
    unreadable: int = 0
    create_time: int = 0
    cancelled_but_left: int = 0
    answered_twice: int = 0
    moved_to_nowhere: int = 0
    lateness_ms: Sequence[int] = ()
    samples: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing is lost, doubled, early, altered or astray.

        What is in ``cancelled_but_left`` or ``answered_twice`` is among the duplicated.
        """
        gone = self.lost or self.moved_to_nowhere
        return not (gone or self.duplicated or self.early or self.altered or self.wrong_target or self.foreign)

    def percentile_ms(self, percent: float) -> int:
        """Return the lateness in ms that `percent` % of the released copies kept within; 0 without any."""
        rank = max(ceil(len(self.lateness_ms) * percent / 100), 1)
        return self.lateness_ms[rank - 1] if self.lateness_ms else 0

    def summary(self) -> str:
        """Return the one line that states the outcome; what it leaves out is 0."""
        line = (
            f"sent {self.sent}, released once {self.released_once}, rejected {self.rejected}, "
            f"duplicated {self.duplicated}, early {self.early}, lost {self.lost}"
        )
        for name in _ONLY_WHERE_ANY:
            if count := getattr(self, name):
                line += f", {name.replace('_', ' ')} {count}"
        return line

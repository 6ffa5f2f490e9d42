"""The counts of an audit, and the line that states them."""

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
    """Outcomes of the records sent.

    ``sent`` is the sum of ``released_once``, ``rejected``, ``pending``, ``duplicated``, ``lost``, and these four:

    * ``cancelled``, ``replaced``, ``moved``: one receipt names the record so, and it is released nowhere. A moved
      schedule goes on in a new record, which counts by itself.
    * ``answered``: a control that is no schedule itself, with its one receipt.

    A control without its receipt is ``lost``, and a control with two is ``duplicated``; a record that has left although
    a receipt names it is ``duplicated`` too. The other counts are of copies; a record may have several:

    * ``early``: appended before the due time.
    * ``altered``: key, value or user headers differ from the sent record; or a receipt does not fit its control.
    * ``wrong_target``: in a topic that the record did not name.
    * ``foreign``: the delay topics do not hold the origin that the copy names.
    * ``unreadable``: released, although the audit cannot compute its due time.
    * ``create_time``: released to a topic without append times, so that its time is only the router's own claim.
    * ``cancelled_but_left``: a receipt names it, and it was released or rejected all the same.
    * ``answered_twice``: a control with more than one receipt.
    * ``moved_to_nowhere``: moved by its receipt, but the moved schedule has no record although it is due again.

    Two fields help to investigate:

    * ``lateness_ms``: sorted; append time minus due time, or minus the time of sending if that was later.
    * ``samples``: for each count, a line for each of the first offenders.
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
        """Says that no record is lost, doubled, early, altered or astray.

        The records in ``cancelled_but_left`` and ``answered_twice`` also count as ``duplicated``.
        """
        gone = self.lost or self.moved_to_nowhere
        return not (gone or self.duplicated or self.early or self.altered or self.wrong_target or self.foreign)

    def percentile_ms(self, percent: float) -> int:
        """Return the lateness in ms that `percent` % of the released copies did not exceed; 0 if there is none."""
        rank = max(ceil(len(self.lateness_ms) * percent / 100), 1)
        return self.lateness_ms[rank - 1] if self.lateness_ms else 0

    def summary(self) -> str:
        """Return one line that states the outcome; counts that it leaves out are 0."""
        line = (
            f"sent {self.sent}, released once {self.released_once}, rejected {self.rejected}, "
            f"duplicated {self.duplicated}, early {self.early}, lost {self.lost}"
        )
        for name in _ONLY_WHERE_ANY:
            if count := getattr(self, name):
                line += f", {name.replace('_', ' ')} {count}"
        return line

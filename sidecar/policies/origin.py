"""Who changed a policy, when and through what: headers of the policy's record, beside its value.

::

    changed-by        token 1f2e3d4c (operate)    or, by a command: alice
    changed-through   admin API                   or the command's name: policy set
    changed-from      10.1.2.3                    the caller's address, or the host that the command ran on

Headers and not keys of the value: routers that do not know of them read the policy as before, and what is compared,
kept in a repository or written by hand stays what is set. Whoever may write to the policies topic can write anything in
them: they are for colleagues, and no proof against one who has that right.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from sidecar.policies.policy import Policy, Scope, plain_of

CHANGED_BY: Final = "changed-by"
CHANGED_THROUGH: Final = "changed-through"
CHANGED_FROM: Final = "changed-from"

MOST_CHANGES: Final = 200
"""The newest that are remembered, of all scopes together: a policy is changed by people, a few times a day."""

MAX_CHARACTERS: Final = 200
"""Of what a header says: more is nobody's name."""


class Origin(NamedTuple):
    """Who changes a policy; empty is not known."""

    by: str = ""
    through: str = ""
    address: str = ""

    def headers(self) -> list[tuple[str, str | bytes | None]]:
        """As the record has them."""
        told = ((CHANGED_BY, self.by), (CHANGED_THROUGH, self.through), (CHANGED_FROM, self.address))
        return [(name, text[:MAX_CHARACTERS].encode("utf-8", "replace")) for name, text in told if text]


NOBODY: Final = Origin()


class Change(NamedTuple):
    """A record of the policies topic: what a scope was set to, None where its policy was removed, by whom and when."""

    scope: Scope
    policy: Policy | None
    origin: Origin
    at_ms: int

    def as_json(self) -> dict[str, Any]:
        """For the admin API and for commands; all ``values`` that were set from then on, or None."""
        by, through, address = self.origin
        values = None if self.policy is None else plain_of(self.policy)
        told = {"by": by, "through": through, "address": address}
        return {"scope": str(self.scope), "at_ms": self.at_ms, "values": values, **told}


def remembered(changes: tuple[Change, ...], change: Change) -> tuple[Change, ...]:
    """With one more, the newest last, and without the oldest where there are too many."""
    return (*changes, change)[-MOST_CHANGES:]


def origin_of(headers: Iterable[tuple[str, bytes | None]]) -> Origin:
    """What the headers of a record say; of several of a name the last one."""
    told = {name: (raw or b"").decode("utf-8", "replace")[:MAX_CHARACTERS] for name, raw in headers}
    return Origin(told.get(CHANGED_BY, ""), told.get(CHANGED_THROUGH, ""), told.get(CHANGED_FROM, ""))

"""Origins of policy changes, in headers of the record of the policy: person, command or API, and address.

::

    changed-by        token 1f2e3d4c (operate)    or, by a command: alice
    changed-through   admin API                   or the command's name: policy set
    changed-from      10.1.2.3                    the caller's address, or the host that the command ran on

The origin is in headers, and not in keys of the value: a router that does not know the headers reads the policy as
before, and a value that is compared, kept in a repository or written by hand contains only settings. A person with the
right to write to the policies topic can write any origin: the headers inform colleagues, and are no proof.
"""

import getpass
import os
import socket
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from sidecar.policies.policy import Policy, Scope, plain_of

CHANGED_BY: Final = "changed-by"
CHANGED_THROUGH: Final = "changed-through"
CHANGED_FROM: Final = "changed-from"

MOST_CHANGES: Final = 200
"""The number of newest changes to keep, of all scopes together: people change a policy, a few times a day."""

MAX_CHARACTERS: Final = 200
"""The most characters of a header; no name is longer."""


class ChangeOrigin(NamedTuple):
    """The origin of a change of a policy; an empty field is not known."""

    by: str = ""
    through: str = ""
    address: str = ""

    def headers(self) -> list[tuple[str, str | bytes | None]]:
        """Return the headers of the record."""
        told = ((CHANGED_BY, self.by), (CHANGED_THROUGH, self.through), (CHANGED_FROM, self.address))
        return [(name, text[:MAX_CHARACTERS].encode("utf-8", "replace")) for name, text in told if text]


NOBODY: Final = ChangeOrigin()


def origin_of_command() -> ChangeOrigin:
    """Return the origin of a change by a command of this process: its user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # The user of a container may have no name.
        user = f"uid {os.getuid()}"
    return ChangeOrigin(user, "command", socket.gethostname())


class Change(NamedTuple):
    """A record of the policies topic: scope, policy (None if it was removed), origin and time."""

    scope: Scope
    policy: Policy | None
    origin: ChangeOrigin
    at_ms: int

    def as_json(self) -> dict[str, Any]:
        """Return the change for the admin API and commands; ``values`` is the whole policy, None if it was removed."""
        by, through, address = self.origin
        values = None if self.policy is None else plain_of(self.policy)
        told = {"by": by, "through": through, "address": address}
        return {"scope": str(self.scope), "at_ms": self.at_ms, "values": values, **told}


def remembered(changes: tuple[Change, ...], change: Change) -> tuple[Change, ...]:
    """Return the changes with one more, the newest last; at most the MOST_CHANGES newest."""
    return (*changes, change)[-MOST_CHANGES:]


def origin_of(headers: Iterable[tuple[str, bytes | None]]) -> ChangeOrigin:
    """Return the origin in the headers of a record; the last header of a name counts."""
    told = {name: (raw or b"").decode("utf-8", "replace")[:MAX_CHARACTERS] for name, raw in headers}
    return ChangeOrigin(told.get(CHANGED_BY, ""), told.get(CHANGED_THROUGH, ""), told.get(CHANGED_FROM, ""))

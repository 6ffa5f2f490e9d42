"""Questions to a group of routers and changes in it, independent of the way that reaches the group."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from sidecar.operations.status.answers import Inquiries
from sidecar.policies.policy import Scope
from sidecar.policies.switches import Switches
from sidecar.policies.table import EffectiveValue

# Most commands do not use rejected records, so the modules are not imported at run time.
if TYPE_CHECKING:
    from sidecar.operations.rejected.listing import Position
    from sidecar.operations.rejected.redriving import Progress, Redrive
    from sidecar.operations.rejected.selection import RejectedSelection


class Side(Inquiries, Switches, Protocol):
    """Questions and changes; raises as ``Inquiries`` and :class:`sidecar.policies.operations.Operations` do."""

    def policies(self) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Return the values of every policy by scope, and the unreadable policies with the reason of each."""

    def policy_changes(self) -> list[dict[str, Any]]:
        """Return the changes of policies, the newest first, as :meth:`sidecar.policies.origin.Change.as_json` does."""

    def effective(self, topic: str, target: str = "") -> dict[str, EffectiveValue]:
        """Return the effective value of every key, with its origin."""

    def change(self, scope: Scope, values: Mapping[str, object], unset: Iterable[str] = ()) -> object:
        """Set some values of a policy and unset others."""

    def remove(self, scope: Scope) -> object:
        """Remove a policy."""

    def rejected(self, selection: "RejectedSelection", begin: "Position", most: int) -> dict[str, Any]:
        """Return a page of rejected records, as ``RejectedPage.as_json`` does."""

    def redrive(self, order: "Redrive", on_progress: "Progress") -> dict[str, int]:
        """Drive rejected records again; return the counts of a RedriveReport."""

    def close(self) -> object:
        """Close the clients."""

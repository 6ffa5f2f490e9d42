"""What an operator may ask a group of routers and change in it, whichever way it is reached."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from sidecar.policies.policy import Scope
from sidecar.policies.switches import Switches
from sidecar.policies.table import EffectiveValue
from sidecar.status.answers import Inquiries

# Most commands have nothing to do with rejected records, and need not load them.
if TYPE_CHECKING:
    from sidecar.rejected.listing import Position
    from sidecar.rejected.redriving import Order, Progress
    from sidecar.rejected.selection import Selection


class Side(Inquiries, Switches, Protocol):
    """Questions and changes; errors as of ``Inquiries`` and :class:`sidecar.policies.operations.Operations`."""

    def policies(self) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Values of every policy by scope, and those that cannot be understood with the reason."""

    def policy_changes(self) -> list[dict[str, Any]]:
        """Who changed which policy, the newest first, as :meth:`sidecar.policies.origin.Change.as_json` has it."""

    def effective(self, topic: str, target: str = "") -> dict[str, EffectiveValue]:
        """Every key with the value that holds, and where it comes from."""

    def change(self, scope: Scope, values: Mapping[str, object], unset: Iterable[str] = ()) -> object:
        """Set some values of a policy and unset others."""

    def remove(self, scope: Scope) -> object:
        """Remove a policy."""

    def rejected(self, selection: "Selection", begin: "Position", most: int) -> dict[str, Any]:
        """A page of rejected records, as :meth:`sidecar.rejected.listing.Page.as_json` has it."""

    def redrive(self, order: "Order", on_progress: "Progress") -> dict[str, int]:
        """Drive rejected records again; the counts of :class:`sidecar.rejected.redriving.Report`."""

    def close(self) -> object:
        """Let go of what is open."""

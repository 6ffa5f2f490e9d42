"""A list of rights, in a form that tests can compare."""

from collections.abc import Iterable

from sidecar.cluster.rights.acls import Acl


def by_resource(needed: Iterable[Acl]) -> dict[tuple[str, str, str], str]:
    """Return the operations of each resource, in the order given."""
    found: dict[tuple[str, str, str], str] = {}
    for acl in needed:
        found[acl.resource] = f"{found.get(acl.resource, '')} {acl.operation}".strip()
    return found

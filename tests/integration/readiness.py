"""Reads a router's report of its partitions."""

import json
from typing import Any

from tests.integration.router_process import RouterProcess


def partitions(router: RouterProcess) -> dict[str, Any]:
    """Return the status of each partition by ``topic/partition``; empty while the router does not answer."""
    body = router.http("/readyz")[1]
    found: dict[str, Any] = json.loads(body)["partitions"] if body.startswith("{") else {}
    return found


def refused(router: RouterProcess, place: str) -> bool:
    """Say whether the router refuses to serve a partition."""
    return bool(partitions(router).get(place, {}).get("state") == "refused")

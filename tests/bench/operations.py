"""Benchmarks of operators' work: policies, the admin API, limits, restarts (``make bench-ops``)."""

from collections.abc import Callable, Iterator
from typing import Final

from tests.bench.admin_load import admin_load
from tests.bench.context import Context
from tests.bench.limited import limited
from tests.bench.page import page
from tests.bench.policy_change import policy_change
from tests.bench.results import Row
from tests.bench.rolling import rolling

OPERATIONS: Final[dict[str, Callable[[Context], Iterator[Row]]]] = {
    "policy": policy_change,
    "admin": admin_load,
    "page": page,
    "limited": limited,
    "rolling": rolling,
}
"""Each takes 3 minutes at most, except the page with ten million pending records, and none needs the ceiling."""

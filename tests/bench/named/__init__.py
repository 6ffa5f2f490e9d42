"""Benchmarks of named and recurring schedules: cancels, receipts, finding, series, storms (``make bench-named``).

Each benchmark has its own router, and reads back the fate of its records from the topics.
"""

from collections.abc import Callable, Iterator
from typing import Final

from tests.bench.context import Context
from tests.bench.named.cancels import cancels
from tests.bench.named.finding import finding
from tests.bench.named.receipts import receipts
from tests.bench.named.series import series
from tests.bench.named.storms import storms
from tests.bench.named.without_id import without_id
from tests.bench.results import Row

NAMED: Final[dict[str, Callable[[Context], Iterator[Row]]]] = {
    "cancels": cancels,
    "finding": finding,
    "receipts": receipts,
    "series": series,
    "without-id": without_id,
    "storms": storms,
}
"""The first takes some 12 minutes, the others one or two each; none needs the ceiling."""

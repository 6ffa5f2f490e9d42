"""Packed payloads of random rows, for tests of the structures that keep them."""

import random
from collections.abc import Callable
from typing import Final

from index.buckets.target_counts import Route
from sidecar.engine.payload.records import Payload, packed
from snapshots.segments.rows import RowPacker

ONE, OTHER = RowPacker(), RowPacker()

ROUTES: Final[list[Route]] = ["orders", "bills", ("orders", "bills")]


def kept(packer: RowPacker, rng: random.Random) -> Callable[[int], Payload]:
    """Return a function that makes the payload of an offset."""

    def payload(offset: int) -> Payload:
        route: Route = rng.choice(ROUTES)
        return packed(1_700_000_000_000 + offset, rng.randbytes(rng.choice([1, 30, 300])), packer, route)

    return payload

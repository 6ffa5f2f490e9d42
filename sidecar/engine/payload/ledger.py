"""Names the index of a delay partition with the types that the router fills it with."""

from typing import TypeAlias

from index.partition.partition import PartitionIndex
from sidecar.engine.payload.records import Payload, Refused

PartitionLedger: TypeAlias = PartitionIndex[Payload, Refused]
"""The pending, late, rejected and released records of one delay partition, with the payload that is in memory."""

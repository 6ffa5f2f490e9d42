"""The index of a delay partition as the router fills it."""

from typing import TypeAlias

from index.partition import PartitionIndex
from sidecar.payload.records import Payload, Refused

PartitionLedger: TypeAlias = PartitionIndex[Payload, Refused]
"""What is pending, late, rejected or done of one delay partition, with the payload that is in memory."""

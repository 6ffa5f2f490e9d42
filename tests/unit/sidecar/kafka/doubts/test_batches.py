"""The batches of a partition, from the output of kafka-dump-log.sh."""

import pytest

from index.errors import DelayRouterError
from sidecar.kafka.doubts.batches import Batches

DUMPED = """\
Dumping /var/kafka/orders-3/00000000000000000040.log
Log starting offset: 40
baseOffset: 40 lastOffset: 41 count: 2 baseSequence: 0 lastSequence: 1 producerId: 7 producerEpoch: 3 \
partitionLeaderEpoch: 0 isTransactional: true isControl: false deleteHorizonMs: OptionalLong.empty position: 0 \
CreateTime: 1764158000000 size: 160 magic: 2 compresscodec: none crc: 1 isvalid: true
| offset: 40 CreateTime: 1764158000000 keySize: 1 valueSize: 1 sequence: 0 headerKeys: [delay-source] payload: x
baseOffset: 42 lastOffset: 42 count: 1 baseSequence: 0 lastSequence: 0 producerId: 8 producerEpoch: 0 \
partitionLeaderEpoch: 0 isTransactional: true isControl: false deleteHorizonMs: OptionalLong.empty position: 160 \
CreateTime: 1764158000001 size: 80 magic: 2 compresscodec: none crc: 2 isvalid: true
baseOffset: 43 lastOffset: 43 count: 1 baseSequence: -1 lastSequence: -1 producerId: 8 producerEpoch: 0 \
partitionLeaderEpoch: 0 isTransactional: true isControl: true deleteHorizonMs: OptionalLong.empty position: 240 \
CreateTime: 1764158000002 size: 78 magic: 2 compresscodec: none crc: 3 isvalid: true endTxnMarker: ABORT \
coordinatorEpoch: 0
baseOffset: 44 lastOffset: 46 count: 3 baseSequence: 2 lastSequence: 4 producerId: 7 producerEpoch: 3 \
partitionLeaderEpoch: 0 isTransactional: true isControl: false deleteHorizonMs: OptionalLong.empty position: 318 \
CreateTime: 1764158000003 size: 200 magic: 2 compresscodec: none crc: 4 isvalid: true
"""


def test_only_the_records_of_the_producer_count() -> None:
    batches = Batches(DUMPED.splitlines())
    assert batches.offsets_of(7, range(40, 47)) == {40, 41, 44, 45, 46}
    assert batches.offsets_of(8, range(42, 45)) == {42}


def test_the_segments_may_come_in_any_order() -> None:
    assert Batches(reversed(DUMPED.splitlines())).offsets_of(7, range(40, 47)) == {40, 41, 44, 45, 46}


@pytest.mark.parametrize(
    ("within", "why"),
    [
        (range(38, 47), "has no batch with offset 38; all offsets from 38 to 46 are needed"),
        (range(40, 49), "has no batch with offset 47"),
        (range(42, 47), "offset 42 was written by producer id 8, not 7: is it the output for this partition"),
    ],
)
def test_an_output_of_another_range_or_partition_is_refused(within: range, why: str) -> None:
    with pytest.raises(DelayRouterError, match=why):
        Batches(DUMPED.splitlines()).offsets_of(7, within)


def test_a_missing_segment_is_refused() -> None:
    lines = [line for line in DUMPED.splitlines() if not line.startswith(("baseOffset: 42", "baseOffset: 43"))]
    with pytest.raises(DelayRouterError, match="has no batch with offset 42"):
        Batches(lines).offsets_of(7, range(40, 47))
    with pytest.raises(DelayRouterError, match="has no batch with offset 40"):
        Batches(()).offsets_of(7, range(40, 47))

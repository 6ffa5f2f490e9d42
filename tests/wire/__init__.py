r"""The Kafka protocol by hand: what no client would write, and what the log holds byte for byte.

    broker = Broker("127.0.0.1:9092")
    record = WireRecord(b"k", b"v", [(b"\xff", b"1"), (b"a\0b", None)])
    offset = broker.produce("orders.delay", 0, WireBatch([record]).encode())
    [again] = broker.records("orders.delay", 0)

A plain listener only, and one broker: every request goes to the broker that was named.
"""

from tests.wire.batch import WireBatch, WireRecord
from tests.wire.broker import Broker, RefusedByBroker, Stored

__all__ = ["Broker", "RefusedByBroker", "Stored", "WireBatch", "WireRecord"]

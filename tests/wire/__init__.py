r"""The Kafka protocol by hand: requests that no client would write, and the bytes of the log.

    broker = Broker("127.0.0.1:9092")
    record = WireRecord(b"k", b"v", [(b"\xff", b"1"), (b"a\0b", None)])
    offset = broker.produce("orders.delay", 0, WireBatch([record]).encode())
    [again] = broker.records("orders.delay", 0)

It has a plain listener only, and one broker: every request goes to the named broker.
"""

from tests.wire.batch import WireBatch, WireRecord
from tests.wire.broker import Broker, RefusedByBroker, Stored

__all__ = ["Broker", "RefusedByBroker", "Stored", "WireBatch", "WireRecord"]

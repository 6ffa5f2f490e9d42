"""Reads the receipts of controls while a caller waits for them."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Final, Self

from confluent_kafka import Consumer, IsolationLevel
from confluent_kafka.admin import AdminClient, OffsetSpec

from index.errors import ConfigError, DelayRouterError
from index.named.receipts import Matched
from index.protocol.headers import DELAY_SOURCE
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.engine.ports import Place
from sidecar.kafka.client import admin as brokers
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import TopicFacts, offsets, topic_facts
from sidecar.kafka.reading.handed_over import readable_headers
from sidecar.kafka.reading.scan import NO_END, POLL_S, PartitionScan
from sidecar.operations.controls.orders import Cancelled, ReceiptAnswer

_SHOWN: Final = 5


class NothingPendingError(ConfigError):
    """No schedule with this id is pending."""


class ChangedError(DelayRouterError):
    """The pending schedule is due at another time than the control names."""


class NotMovedError(ChangedError):
    """The pending schedule could not be written again, and is due as before."""


class NoReceiptError(DelayRouterError):
    """The controls are written, but not every receipt has come in time."""

    def __init__(self, topic: DelayTopicConfig, asked: str, places: Sequence[tuple[int, int]]) -> None:
        """Word the message; ``asked`` is the request of the controls at these places, as ``order-7 is cancelled``."""
        shown = ", ".join(f"{topic.name}/{partition}/{offset}" for partition, offset in places[:_SHOWN])
        super().__init__(
            f"{asked} by {shown}, and no receipt of that has come yet; it will be acted on. See whether the partition"
            f" is served (delay-router status {topic.name}), and then {topic.receipts}, or {topic.rejected} where a"
            " control was rejected"
        )


class Receipts:
    """Reads the receipts topic from the ends that it had before the controls were written."""

    @classmethod
    def from_now_on(
        cls, config: Config, admin: AdminClient, topic: DelayTopicConfig, partitions: Sequence[int]
    ) -> Self:
        """Return a reader for the receipts of controls that are written to these partitions from now on.

        The caller closes it.
        """
        return cls(config, topic, _ends(admin, [(topic.receipts, number) for number in partitions]))

    def __init__(self, config: Config, topic: DelayTopicConfig, ends: Mapping[int, int]) -> None:
        self._source = f"{topic.name}/".encode()
        self._consumer: Consumer = clients.state_reader(config)
        self._scan = PartitionScan(
            self._consumer, {(topic.receipts, number): range(end, NO_END) for number, end in ends.items()}
        )
        self.found: dict[int, ReceiptAnswer] = {}

    def wait(self, written: Mapping[int, int], until_s: float) -> None:
        """Wait until every one of these controls has a receipt, or the time is over."""
        wanted = {self._source + b"%d/%d" % place: place[0] for place in written.items()}
        while len(self.found) < len(written) and time.monotonic() < until_s:
            self._scan.fetch(POLL_S)
            for message in self._scan.taken():
                source = dict(readable_headers(message)).get(DELAY_SOURCE) or b""
                if source in wanted and (told := told_by(message.value() or b"", wanted[source])):
                    self.found[wanted[source]] = told

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def partitions_of(admin: AdminClient, topic: str) -> int:
    """Return the partition count of a delay topic; raise ConfigError when it does not exist."""
    facts = topic_facts(admin, [topic])[topic]
    if not isinstance(facts, TopicFacts):
        raise ConfigError(f"{topic}: there is no such topic, or it may not be described")
    return facts.partitions


def _ends(admin: AdminClient, places: Sequence[Place]) -> dict[int, int]:
    """Return the ends of these partitions, where the next receipts will lie."""
    told = offsets(admin, dict.fromkeys(places, OffsetSpec.latest()), IsolationLevel.READ_COMMITTED)
    ends: dict[int, int] = {}
    for (name, number), each in told.items():
        if not isinstance(each, brokers.LogOffset):
            raise DelayRouterError(f"receipts topic {name}, partition {number}: {each.str()}; delay-router check")
        ends[number] = each.offset
    return ends


def told_by(value: bytes, partition: int) -> ReceiptAnswer | None:
    """Read the value of a receipt; return None for a record of another program, which may have any value."""
    try:
        plain = json.loads(value)
        cancelled = [Cancelled(partition, each["offset"], each["due"]) for each in plain["cancelled"]]
        matched = Matched(plain["matched"], plain.get("estimated")) if "matched" in plain else None
        return ReceiptAnswer(plain["outcome"], tuple(cancelled), plain["due"], plain.get("why", ""), matched)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None

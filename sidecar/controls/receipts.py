"""Reads the receipts of controls that somebody waits for."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from confluent_kafka import Consumer, IsolationLevel
from confluent_kafka.admin import AdminClient, OffsetSpec

from index.errors import ConfigError, DelayRouterError
from index.headers import DELAY_SOURCE
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.intake.handed_over import readable_headers
from sidecar.kafka import admin as brokers
from sidecar.kafka import clients
from sidecar.kafka.admin import TopicFacts, offsets, topic_facts
from sidecar.kafka.scan import NO_END, POLL_S, PartitionScan
from sidecar.ports import Place

WAIT_S: Final = 10.0
"""A receipt takes some 20 ms where the partition is served; a take-over takes seconds."""

_SHOWN: Final = 5


class NothingPendingError(ConfigError):
    """Nothing of this id is pending."""


class ChangedError(DelayRouterError):
    """What is pending is due at another time than was asked for."""


class NotMovedError(ChangedError):
    """What is pending could not be written again, and is due as before."""


class NoReceiptError(DelayRouterError):
    """The controls are written, and not every receipt has come in time."""

    def __init__(self, topic: DelayTopicConfig, asked: str, places: Sequence[tuple[int, int]]) -> None:
        """``asked``: what the controls at these places ask for, as in ``order-7 is cancelled``."""
        shown = ", ".join(f"{topic.name}/{partition}/{offset}" for partition, offset in places[:_SHOWN])
        super().__init__(
            f"{asked} by {shown}, and no receipt of that has come yet; it will be acted on. See whether the partition"
            f" is served (delay-router status {topic.name}), and then {topic.receipts}, or {topic.rejected} where a"
            " control was rejected"
        )


class Cancelled(NamedTuple):
    """A schedule that is not released any more, or not when it was to be."""

    partition: int
    offset: int
    due_ms: int

    def as_json(self) -> dict[str, int]:
        """For scripts."""
        return {"partition": self.partition, "offset": self.offset, "due_ms": self.due_ms}


@dataclass(frozen=True, slots=True)
class Told:
    """What the receipt of a control says; ``due_ms`` is that of the schedule which is pending instead, if one is.

    Of what it has moved, the last in a partition is what is pending instead. ``why`` tells why a move could not write
    the last one again.
    """

    outcome: str
    cancelled: tuple[Cancelled, ...] = ()
    due_ms: int | None = None
    why: str = ""

    def as_json(self) -> dict[str, object]:
        """For scripts that replace."""
        return {"outcome": self.outcome, "replaced": [each.as_json() for each in self.cancelled]}


class Receipts:
    """Reads on from the ends of the receipts topic as they were before the controls were written."""

    @classmethod
    def from_now_on(
        cls, config: Config, admin: AdminClient, topic: DelayTopicConfig, partitions: Sequence[int]
    ) -> Self:
        """Of controls that are written to these partitions from now on; the caller closes it."""
        return cls(config, topic, _ends(admin, [(topic.receipts, number) for number in partitions]))

    def __init__(self, config: Config, topic: DelayTopicConfig, ends: Mapping[int, int]) -> None:
        self._source = f"{topic.name}/".encode()
        self._consumer: Consumer = clients.state_reader(config)
        self._scan = PartitionScan(
            self._consumer, {(topic.receipts, number): range(end, NO_END) for number, end in ends.items()}
        )
        self.found: dict[int, Told] = {}

    def wait(self, written: Mapping[int, int], until_s: float) -> None:
        """Wait until there is a receipt of each of these controls, or the time is over."""
        wanted = {self._source + b"%d/%d" % place: place[0] for place in written.items()}
        while len(self.found) < len(written) and time.monotonic() < until_s:
            self._scan.fetch(POLL_S)
            for message in self._scan.taken():
                source = dict(readable_headers(message)).get(DELAY_SOURCE) or b""
                if source in wanted:
                    self.found[wanted[source]] = _read(wanted[source], message.value() or b"")

    def close(self) -> None:
        """Give the consumer back."""
        self._consumer.close()


def partitions_of(admin: AdminClient, topic: str) -> int:
    """How many partitions the delay topic has; ConfigError when it is not there."""
    facts = topic_facts(admin, [topic])[topic]
    if not isinstance(facts, TopicFacts):
        raise ConfigError(f"{topic}: there is no such topic, or it may not be described")
    return facts.partitions


def _ends(admin: AdminClient, places: Sequence[Place]) -> dict[int, int]:
    """Where receipts that are written from now on will lie."""
    told = offsets(admin, dict.fromkeys(places, OffsetSpec.latest()), IsolationLevel.READ_COMMITTED)
    ends: dict[int, int] = {}
    for (name, number), each in told.items():
        if not isinstance(each, brokers.Told):
            raise DelayRouterError(f"receipts topic {name}, partition {number}: {each.str()}; delay-router check")
        ends[number] = each.offset
    return ends


def _read(partition: int, value: bytes) -> Told:
    plain = json.loads(value)
    cancelled = [Cancelled(partition, each["offset"], each["due"]) for each in plain["cancelled"]]
    return Told(plain["outcome"], tuple(cancelled), plain["due"], plain.get("why", ""))

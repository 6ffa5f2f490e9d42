"""Learns the producer id of a transactional producer, which the client tells in its statistics alone."""

import json
import time
from typing import Final

from confluent_kafka import Producer

from index.errors import DelayRouterError

TOLD_WITHIN_S: Final = 10.0
_POLL_S: Final = 0.05


class ProducerId:
    """The id of one producer. ``note`` is the callback for its statistics."""

    def __init__(self) -> None:
        self._told: int | None = None

    def note(self, statistics: str) -> None:
        """Take the id out of the statistics; they have none before the brokers have given one."""
        told = json.loads(statistics).get("eos", {}).get("producer_id", -1)
        if told >= 0:
            self._told = told

    def wait(self, producer: Producer) -> int:
        """Return the id; raise DelayRouterError when the client does not tell it within 10 s."""
        until_s = time.monotonic() + TOLD_WITHIN_S
        while self._told is None:
            if time.monotonic() > until_s:
                raise DelayRouterError("the client does not tell the producer id of its transactions; try again")
            producer.poll(_POLL_S)
        return self._told

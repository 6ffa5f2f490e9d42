"""Controls for the admin API; any thread may call."""

from typing import Final

from confluent_kafka.admin import AdminClient

from sidecar.config.model import Config
from sidecar.controls import cancelling
from sidecar.controls.cancelling import Order
from sidecar.controls.receipts import Cancelled

WAIT_S: Final = 8.0
"""For a receipt; the caller hears of one that does not come before its own time is over."""


class ControlOperations:
    """By the name of the delay topic; ConfigError for one that there is not, KafkaException when no answer comes."""

    def __init__(self, config: Config, admin: AdminClient) -> None:
        self._config = config
        self._admin = admin

    def cancel(self, topic: str, order: Order) -> list[Cancelled]:
        """See :func:`sidecar.controls.cancelling.cancel`."""
        configured = self._config.require_delay_topic(topic)
        return cancelling.cancel(self._config, self._admin, configured, order, WAIT_S)

"""Controls for the admin API; any thread may call."""

from collections.abc import Callable
from typing import Final

from confluent_kafka.admin import AdminClient

from sidecar.config.model import Config
from sidecar.controls import ordering
from sidecar.controls.ordering import Order
from sidecar.controls.receipts import Told
from sidecar.controls.replacing import Place, receipts_to_come, replaced_by, require_key

WAIT_S: Final = 8.0
"""For a receipt; the caller hears of one that does not come before its own time is over."""


class ControlOperations:
    """By the name of the delay topic; ConfigError for one that there is not, KafkaException when no answer comes."""

    def __init__(self, config: Config, admin: AdminClient) -> None:
        self._config = config
        self._admin = admin

    def carry_out(self, topic: str, order: Order) -> Told:
        """See :func:`sidecar.controls.ordering.carry_out`."""
        configured = self._config.require_delay_topic(topic)
        return ordering.carry_out(self._config, self._admin, configured, order, WAIT_S)

    def replace(self, topic: str, deliver_id: str, key: bytes | None, write: Callable[[], Place]) -> Told:
        """What the record that ``write`` writes has replaced, by its receipt.

        ConfigError where it has no key, and could come to lie in another partition than what it replaces; else as
        :func:`sidecar.controls.replacing.judged`.
        """
        configured = self._config.require_delay_topic(topic)
        if key is None:
            require_key(self._admin, topic)
        with receipts_to_come(self._config, self._admin, topic) as receipts:
            return replaced_by(write(), receipts, configured, deliver_id, WAIT_S)

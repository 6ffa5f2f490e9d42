"""Carries out controls for the admin API; any thread may call."""

from collections.abc import Callable
from typing import Final

from confluent_kafka.admin import AdminClient

from sidecar.config.model import Config
from sidecar.operations.controls import ordering
from sidecar.operations.controls.ordering import ControlOrder
from sidecar.operations.controls.receipts import ReceiptAnswer
from sidecar.operations.controls.replacing import Place, receipts_to_come, replaced_by, require_key

WAIT_S: Final = 8.0
"""Wait for a receipt; shorter than the time of a call, so that the caller learns that no receipt has come."""


class ControlOperations:
    """Carries out controls, by the name of the delay topic.

    Methods raise ConfigError for a delay topic that is not configured, and KafkaException when no broker answers.
    """

    def __init__(self, config: Config, admin: AdminClient) -> None:
        self._config = config
        self._admin = admin

    def carry_out(self, topic: str, order: ControlOrder) -> ReceiptAnswer:
        """See :func:`sidecar.operations.controls.ordering.carry_out`."""
        configured = self._config.require_delay_topic(topic)
        return ordering.carry_out(self._config, self._admin, configured, order, WAIT_S)

    def replace(self, topic: str, deliver_id: str, key: bytes | None, write: Callable[[], Place]) -> ReceiptAnswer:
        """Write a record with ``write``, wait for its receipt and return the schedules that it has replaced.

        Raise ConfigError where the record has no key and could go to another partition than the schedule to replace,
        and the errors of :func:`sidecar.operations.controls.replacing.judged`.
        """
        configured = self._config.require_delay_topic(topic)
        if key is None:
            require_key(self._admin, topic)
        with receipts_to_come(self._config, self._admin, topic) as receipts:
            return replaced_by(write(), receipts, configured, deliver_id, WAIT_S)

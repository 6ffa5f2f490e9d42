"""Operations of the admin API on rejected topics; any thread may call them."""

from confluent_kafka.admin import AdminClient

from sidecar.config.model import Config
from sidecar.operations.rejected import listing, redriving
from sidecar.operations.rejected.counting import Counted, Counts
from sidecar.operations.rejected.listing import Position, RejectedPage
from sidecar.operations.rejected.redriving import Redrive, RedriveReport
from sidecar.operations.rejected.selection import RejectedSelection


class RejectedOperations:
    """Lists, counts and drives rejected records, by the name of the delay topic.

    Methods raise ConfigError for a delay topic that is not configured, and KafkaException when no broker answers.
    """

    def __init__(self, config: Config, admin: AdminClient) -> None:
        self._config = config
        self._admin = admin
        self._counts = Counts(config, admin)

    def page(self, selection: RejectedSelection, begin: Position, most: int) -> RejectedPage:
        """See :func:`sidecar.operations.rejected.listing.page`."""
        topic = self._config.require_delay_topic(selection.topic)
        return listing.page(self._config, self._admin, topic, selection, begin, most)

    def counts(self, topic: str) -> Counted:
        """See :class:`sidecar.operations.rejected.counting.Counts`."""
        return self._counts.of(self._config.require_delay_topic(topic))

    def redrive(self, order: Redrive) -> RedriveReport:
        """See :func:`sidecar.operations.rejected.redriving.redrive`."""
        topic = self._config.require_delay_topic(order.selection.topic)
        return redriving.redrive(self._config, self._admin, topic, order)

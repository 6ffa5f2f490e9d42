"""Answers questions and makes changes through Kafka itself: the status topic, the policies topic and the brokers."""

import getpass
import os
import socket
from functools import cached_property
from typing import Any, Final

from sidecar import clock
from sidecar.cluster.topics import reach
from sidecar.config.model import Config
from sidecar.operations.finding.wanted import ScheduleFilter
from sidecar.operations.rejected import listing, redriving
from sidecar.operations.rejected.listing import Position
from sidecar.operations.rejected.redriving import Progress, Redrive
from sidecar.operations.rejected.selection import RejectedSelection
from sidecar.operations.status.answers import LookupAnswer, PendingAnswer, SchedulesAnswer, StatusAnswer
from sidecar.operations.status.inquiries import GroupInquiries
from sidecar.operations.status.report_reader import ReportsOnDemand
from sidecar.policies.operations import Operations
from sidecar.policies.origin import ChangeOrigin
from sidecar.policies.policy import plain_of
from sidecar.policies.topic import PoliciesOnDemand

COMMAND: Final = "command"
"""Name of the command line as the origin of a policy change."""


class KafkaSide(Operations):
    """Implements :class:`sidecar.operations.asking.side.Side` through Kafka, with the configuration of a router."""

    def __init__(self, config: Config) -> None:
        config.require_delay_topics()
        self._all_policies = PoliciesOnDemand(config)
        self._client = reach.connect(config)
        super().__init__(config, self._client, self._all_policies, origin=_whoever_runs_this())

    @cached_property
    def _inquiries(self) -> GroupInquiries:
        reports = ReportsOnDemand(self._config, self._client, clock.now_ms)
        return GroupInquiries(self._config, self._client, self._all_policies, reports).start()

    def status(self, topic: str = "") -> StatusAnswer:
        """Answer ``Inquiries.status``."""
        self._all_policies.settle()
        return self._inquiries.status(topic)

    def pending(self, topic: str) -> PendingAnswer:
        """Answer ``Inquiries.pending``."""
        return self._inquiries.pending(topic)

    def lookup(self, topic: str, partition: int, offset: int) -> LookupAnswer:
        """Answer ``Inquiries.lookup``."""
        return self._inquiries.lookup(topic, partition, offset)

    def schedules(self, wanted: ScheduleFilter, begin: str, most: int) -> SchedulesAnswer:
        """Answer ``Inquiries.schedules``."""
        return self._inquiries.schedules(wanted, begin, most)

    def policies(self) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Return the values of every policy by scope, and the unreadable policies with the reason of each."""
        table = self.table()
        return {str(scope): plain_of(policy) for scope, policy in table.policies.items()}, dict(table.unreadable)

    def policy_changes(self) -> list[dict[str, Any]]:
        """Answer ``Side.policy_changes``."""
        return [each.as_json() for each in reversed(self.table().changes)]

    def rejected(self, selection: RejectedSelection, begin: Position, most: int) -> dict[str, Any]:
        """Answer ``Side.rejected``."""
        topic = self._config.require_delay_topic(selection.topic)
        return listing.page(self._config, self._client, topic, selection, begin, most).as_json()

    def redrive(self, order: Redrive, on_progress: Progress) -> dict[str, int]:
        """Drive records again as ``Side.redrive`` says."""
        topic = self._config.require_delay_topic(order.selection.topic)
        return redriving.redrive(self._config, self._client, topic, order, on_progress).as_json()

    def close(self) -> None:
        """Close the clients of the inquiries, if any were made."""
        if "_inquiries" in self.__dict__:
            self._inquiries.close()


def _whoever_runs_this() -> ChangeOrigin:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # The user of a container may have no name.
        user = f"uid {os.getuid()}"
    return ChangeOrigin(user, COMMAND, socket.gethostname())

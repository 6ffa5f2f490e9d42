"""Where an owned partition learns what holds for its delay topic: policies as they are at its time of day."""

from typing import Protocol

from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.policies.pauses import next_end_ms
from sidecar.policies.table import Policies, PolicyTable, TopicSettings, settings_of


class SettingsSource(Protocol):
    """Where an owned partition learns what holds for its delay topic."""

    def version(self, now_ms: int) -> object:
        """Another object whenever something may have changed."""

    def read(self) -> TopicSettings:
        """What holds by the version asked for last; ValueError when it cannot be reconciled."""


class PolicySettings:
    """Policies applied to the configuration of one delay topic; for one thread."""

    def __init__(self, policies: Policies, config: Config, configured: DelayTopicConfig) -> None:
        self._policies = policies
        self._config = config
        self._configured = configured
        self._written: PolicyTable | None = None
        self._holds = PolicyTable()
        self._until_ms: int | None = None

    def version(self, now_ms: int) -> object:
        """The table of the policies in force: another one once a policy has changed, or a pause has ended.

        A clock that is set back does not begin again what has ended.
        """
        written = self._policies.table
        if written is not self._written or (self._until_ms is not None and now_ms >= self._until_ms):
            self._written, self._holds = written, written.at(now_ms)
            self._until_ms = next_end_ms(written.policies, now_ms)
        return self._holds

    def read(self) -> TopicSettings:
        """As ``settings_of``."""
        return settings_of(self._holds, self._config, self._configured)

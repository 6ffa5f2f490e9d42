"""The settings of a delay topic for an owned partition: its configuration with the policies in force at a time."""

from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.config.units import MAX_INSTANT_MS
from sidecar.engine.ownership.ports import TopicSettings
from sidecar.policies.pauses import Ended, ended_by, next_end_ms
from sidecar.policies.table import Policies, PolicyTable, settings_of


class PolicySettings:
    """The policies applied to the configuration of one delay topic; used by one thread only."""

    def __init__(self, policies: Policies, config: Config, configured: DelayTopicConfig) -> None:
        self._policies = policies
        self._config = config
        self._configured = configured
        self._written: PolicyTable | None = None
        self._holds = PolicyTable()
        self._until_ms: int | None = None
        self._ended: set[Ended] = set()

    def version(self, now_ms: int) -> object:
        """Return the table of the policies in force; a new one after a policy has changed or a pause has ended.

        A clock that is set back does not begin an ended pause again, even if another policy changes meanwhile.
        """
        written = self._policies.table
        if written is not self._written or (self._until_ms is not None and now_ms >= self._until_ms):
            self._ended |= ended_by(written.policies, now_ms)
            # A pause that is no longer written needs no note, so the set stays small.
            self._ended &= ended_by(written.policies, MAX_INSTANT_MS)
            self._written, self._holds = written, written.at(now_ms, self._ended)
            self._until_ms = next_end_ms(written.policies, now_ms)
        return self._holds

    def read(self) -> TopicSettings:
        """Return the settings by the policies in force at the last ``version``."""
        return settings_of(self._holds, self._config, self._configured)

"""Carrying a change of policies into a partition that is being served, without taking it over again.

What is decided when a record leaves (expiry, timestamp, tick, pause, placement) holds from the next round on. What is
decided when a record is indexed must be decided the same on every replay, so it holds from an offset on, and that
offset is committed before any record is decided by it::

    offsets   ... decided by the old rules ... │ not read yet ...
                                               ▲ everything indexed so far: here the new epoch begins
    one transaction: what leaves anyway, progress, and the rule epochs with the new one

Between planning that transaction and its commit nothing is indexed. If its outcome is unknown, the partition is taken
over again, and the state says which rules hold from where. An epoch may begin beyond the committed C (late records of a
paused partition hold C back): what lies between is decided again by the rules it was decided by.

Rejected: taking the partition over again for each change. It costs a fencing, a read of the state and a replay of
[S, C) for every partition of the topic at once, while records are due.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from index.errors import FormatError, RefusedError
from index.retention import rules_needed_from
from index.rule_history import RuleHistory
from index.rules import Rules
from sidecar.context import PartitionContext
from sidecar.payload.ledger import PartitionLedger
from sidecar.policies.settings import SettingsSource
from sidecar.policies.table import TopicSettings
from sidecar.release.transaction import Request
from snapshots.state import encode_history

AGAIN_AFTER_S: Final = 30.0
"""How soon a change is tried again for which the state has no room."""


def history_to_commit(ledger: PartitionLedger, history: RuleHistory, rules: Rules) -> RuleHistory:
    """What records may still need, when ``rules`` are to decide from the next one on."""
    parts, committed = ledger.parts, ledger.committed
    # Its first records may have left, and S is beyond them; once it is sealed, its bucket begins there all the same.
    unsealed_from = [part.from_offset for part in (parts.frozen, parts.mutable) if part is not None]
    manifests = (bucket.manifest for bucket in parts.buckets.values())
    needed_from = min([rules_needed_from(committed, manifests), *unsealed_from])
    return history.with_epoch(ledger.indexed_to, rules).since(needed_from)


class RuleChanges:
    """What holds in one owned partition; used by its worker only.

    Owner of the requests that begin a rule epoch; ``on_entered`` is called with all that is known once one has begun.
    """

    def __init__(self, source: SettingsSource, context: PartitionContext) -> None:
        """RefusedError when the policies of now cannot be reconciled with the configuration."""
        self.on_entered: Callable[[RuleHistory], None] = _nobody
        self._source = source
        self._waits = False
        self._not_before_s = 0.0
        self._clock = context.clock
        self._log = context.log
        self._version = source.version(self._clock.now_ms())
        try:
            self.settings = source.read()
        except ValueError as error:
            raise RefusedError(f"the policies of {context.name} cannot be: {error}") from error
        self._history = RuleHistory.beginning(0, self.settings.rules)

    def begin(self, history: RuleHistory) -> None:
        """The partition was restored, and these are the rules that it knows."""
        self._history = history
        self.settings = replace(self.settings, rules=history.in_force)

    def look(self) -> TopicSettings | None:
        """What holds from now on, when that has changed; its rules only once an epoch of theirs is committed."""
        version = self._source.version(self._clock.now_ms())
        if version is self._version:
            return None
        self._version = version
        try:
            settings = self._source.read()
        except ValueError as error:
            self._log.error("policies_impossible", why=str(error), still_holds="what held before")
            return None
        if settings.is_doubtful:
            settings = replace(settings, rules=self.settings.rules)
        if settings == self.settings:
            return None
        self.settings = settings
        self._waits = settings.rules != self._history.in_force
        return settings

    def request(self, ledger: PartitionLedger) -> Request | None:
        """To begin an epoch in the next transaction, where a change waits for one."""
        if not self._waits or self._clock.running_s() < self._not_before_s:
            return None
        history = history_to_commit(ledger, self._history, self.settings.rules)
        try:
            encode_history(history)
        except FormatError as error:
            # Records in old buckets still need all of them: nothing is lost by waiting but time.
            self._log.error("rules_not_changed", why=str(error), epochs=len(history.epochs), again_in_s=AGAIN_AFTER_S)
            self._not_before_s = self._clock.running_s() + AGAIN_AFTER_S
            return None
        return Request(self, history=history)

    def committed(self, request: Request, _offsets: Sequence[int]) -> None:
        """The epoch has begun: decide by it, and by all that was left out of what is in the state now."""
        assert request.history is not None
        written = request.history
        # No policy changes the aliases, and whoever writes knows which headers are stripped from the take-over on.
        assert written.in_force.controls.aliases == self._history.in_force.controls.aliases
        # A load that is under way may still be about records that nobody needs any more.
        self._history = self._history.with_epoch(*written.last)
        self._waits = False
        self._log.info("rules_changed", from_offset=written.last.from_offset, epochs=len(written.epochs))
        self.on_entered(self._history)

    def refused(self, _request: Request, _why: str) -> None:
        """It waits for the next transaction."""

    def left_out(self, _request: Request) -> None:
        """It waits for the next transaction."""


def _nobody(_: RuleHistory) -> None:
    """Nobody goes by the rules yet."""

"""Carries a change of policies into a partition that is being served, without a take-over.

Settings that apply when a record leaves (expiry, timestamp, tick, pause, placement) hold from the next round on. Rules
that apply when a record is indexed must decide the same on every replay. So they hold from an offset on, and that
offset is committed before they decide any record::

    offsets   ... decided by the old rules ... │ not read yet ...
                                               ▲ everything indexed so far: here the new epoch begins
    one transaction: the records that leave anyway, progress, and the rule epochs with the new one

No record is indexed between the plan of that transaction and its commit. If its outcome is unknown, the partition is
taken over again, and the state tells the offsets from which rules hold. An epoch may begin beyond the committed C,
since late records of a paused partition hold C back: the earlier rules decide the records in between again.

Rejected: to take the partition over again for each change. It costs a fencing, a read of the state and a replay of
[S, C) for every partition of the topic at once, while records are due.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from index.buckets.retention import rules_needed_from
from index.errors import FormatError, RefusedError
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.engine.context import PartitionContext
from sidecar.engine.ownership.ports import SettingsSource, TopicSettings
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.release.transaction import Request
from snapshots.state.state import encode_history

AGAIN_AFTER_S: Final = 30.0
"""The pause before a change is tried again, if the state has no room for it."""


def history_to_commit(ledger: PartitionLedger, held: Iterable[int], history: RuleHistory, rules: Rules) -> RuleHistory:
    """Return the history with ``rules`` for the next record on, without epochs that no record needs any more."""
    parts, committed = ledger.parts, ledger.committed
    # The first records of an unsealed part may have left, so that S is beyond them; its bucket will still begin there.
    unsealed_from = [part.from_offset for part in (parts.frozen, parts.mutable) if part is not None]
    manifests = (bucket.manifest for bucket in parts.buckets.values())
    needed_from = min([rules_needed_from(committed, manifests, held), *unsealed_from])
    return history.with_epoch(ledger.indexed_to, rules).since(needed_from)


class RuleChanges:
    """The settings and rules of one owned partition; used by its worker only.

    It owns the requests that begin a rule epoch. It calls ``on_entered`` with the history of rules after an epoch has
    begun.
    """

    def __init__(self, source: SettingsSource, context: PartitionContext) -> None:
        """Raise RefusedError if the policies cannot be reconciled with the configuration."""
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
        """Begin with the rules of the restored partition."""
        self._history = history
        self.settings = replace(self.settings, rules=history.in_force)

    def look(self) -> TopicSettings | None:
        """Return the settings if they have changed, else None; their rules hold after their epoch is committed."""
        version = self._source.version(self._clock.now_ms())
        if version is self._version:
            return None
        self._version = version
        try:
            settings = self._source.read()
        except ValueError as error:
            self._log.error("policies_impossible", why=str(error), still_holds="the settings before")
            return None
        if settings.is_doubtful:
            settings = replace(settings, rules=self.settings.rules)
        if settings == self.settings:
            return None
        self.settings = settings
        self._waits = settings.rules != self._history.in_force
        return settings

    def request(self, ledger: PartitionLedger, held: Iterable[int]) -> Request | None:
        """Return the request to begin an epoch in the next transaction; None if no change waits for one.

        ``held`` are the offsets of the held records.
        """
        if not self._waits or self._clock.running_s() < self._not_before_s:
            return None
        history = history_to_commit(ledger, held, self._history, self.settings.rules)
        try:
            encode_history(history)
        except FormatError as error:
            # Held records and old buckets still need all epochs: the change has to wait, and costs only time.
            self._log.error("rules_not_changed", why=str(error), epochs=len(history.epochs), again_in_s=AGAIN_AFTER_S)
            self._not_before_s = self._clock.running_s() + AGAIN_AFTER_S
            return None
        return Request(self, history=history)

    def committed(self, request: Request, _offsets: Sequence[int]) -> None:
        """Decide by the new epoch, and keep the older epochs that the state does not contain any more."""
        assert request.history is not None
        written = request.history
        # No policy changes the aliases: the writer takes the stripped headers from the rules at the take-over.
        assert written.in_force.controls.aliases == self._history.in_force.controls.aliases
        # A load that is under way may still need the epochs of records that have left.
        self._history = self._history.with_epoch(*written.last)
        self._waits = False
        self._log.info("rules_changed", from_offset=written.last.from_offset, epochs=len(written.epochs))
        self.on_entered(self._history)

    def refused(self, _request: Request, _why: str) -> None:
        """Let the change wait for the next transaction."""

    def left_out(self, _request: Request) -> None:
        """Let the change wait for the next transaction."""


def _nobody(_: RuleHistory) -> None:
    """Do nothing: no part follows the rules yet."""

"""The table of all policies, and the settings of a delay topic by it: the most specific scope that sets a key wins.

::

    target/NAME  >  topic/NAME  >  default  >  configuration file

Two keys are exceptions. A delay topic that is ``paused``, or not ``enabled``, is so for all its targets, under any
policy of a target. A target that is not ``enabled`` rejects new records under any ``when_disabled``.

Effects of a changed policy on records that are pending already:

===================  ===================================================================================
key                  on pending records
===================  ===================================================================================
``enabled``          none: they are released when due. Records that come in later are rejected, or released
                     at once (``when_disabled``)
``max_delay``        none: a decision once taken stands, also after a restart
``delay``            none: they keep their due time
``spread``           none: they leave at the same time as before
``retry``            none: they keep their due time, target and number of the attempt
``default_target``   none: they keep their target; if it is no longer allowed, see ``allowed_targets``
``allowed_targets``  records with a target that is no longer allowed are rejected when due (TARGET_NOT_ALLOWED)
``expire_after``     from now on the new limit, unless the record has one of its own
``timestamp``        from now on the new mode
``tick``             from now on the new pace
``placement``        none until they are sealed, or merged, the next time
``paused``           none leaves until the pause ends; then all due records leave at once, in order
                     (the gate holds records for a paused target, see :mod:`sidecar.engine.release.gate`)
``drained``          due ones leave while a partition seals the others; then it is not served until the drain ends
rates                from now on the new rates, also for held records
===================  ===================================================================================

Keys that decide a record when it is indexed (``enabled``, ``when_disabled``, ``max_delay``, ``default_target``,
``allowed_targets``, ``delay``, ``spread``, ``retry``, ``require_time``, ``unknown_headers``) must decide the same when
it is indexed again. So each change of them starts a rule epoch in every partition concerned
(:mod:`sidecar.engine.ownership.rule_changes`). The other keys apply at the time of a release.

Rejected: policies for a pair of delay topic and target. No system that was looked at has them, and the needs of the
consumers of a target do not depend on the delay topic of its records.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

from index.errors import ConfigError
from index.rules.rules import TargetRule
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config, RouterConfig
from sidecar.config.units import format_duration
from sidecar.engine.ownership.ports import TopicSettings
from sidecar.engine.release.expiry import Expiry
from sidecar.engine.release.rates import TargetLimit
from sidecar.policies.origin import Change
from sidecar.policies.pauses import Ended, in_force, why_paused
from sidecar.policies.policy import (
    DEFAULT,
    KEYS,
    PAUSE_TERMS,
    Policy,
    Scope,
    ScopeKind,
    plain_of,
    target_scope,
    topic_scope,
)

CONFIGURATION: Final = "configuration"

_OF_TOPIC: Final = frozenset(DelayTopicConfig.model_fields)
_STOPPING: Final = {"paused": True, "enabled": False}
"""The values by which a delay topic stops all its targets, also a target whose policy has another value."""

_TARGET_KEYS: Final = (
    *("enabled", "when_disabled", "max_delay", "spread", "expire_after", "timestamp", "paused", *PAUSE_TERMS),
    *("records_per_second", "bytes_per_second"),
)


@dataclass(frozen=True, slots=True)
class PolicyTable:
    """All policies at one moment; ``unreadable`` names records that cannot be understood, with the reason.

    If an older policy of such a scope is known, it still holds; ``doubtful`` are the scopes without one. ``changes``
    are the changes that the topic still has, the newest last.
    """

    policies: Mapping[Scope, Policy] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    doubtful: frozenset[Scope] = frozenset()
    changes: tuple[Change, ...] = ()

    def get(self, scope: Scope) -> Policy:
        """Return the policy of one scope; an empty policy if the scope has none."""
        return self.policies.get(scope, _NOTHING_SET)

    def at(self, now_ms: int, ended: Collection[Ended] = frozenset()) -> "PolicyTable":
        """Return the table without the pauses that have ended by a time, and without those that ended before."""
        return replace(self, policies=in_force(self.policies, now_ms, ended))

    def targets(self) -> Iterator[tuple[str, Policy]]:
        """Yield the targets that have a policy, each with its policy."""
        for scope, policy in self.policies.items():
            if scope.kind is ScopeKind.TARGET:
                yield scope.name, policy

    def doubts(self, topic: str) -> bool:
        """Say whether a policy that may concern this delay topic is not known at all."""
        return any(scope.kind is not ScopeKind.TOPIC or scope.name == topic for scope in self.doubtful)


_NOTHING_SET: Final = Policy()
NO_POLICIES: Final = PolicyTable()


class Policies(Protocol):
    """The port through which workers learn of policies."""

    @property
    def table(self) -> PolicyTable:
        """The current table of policies; a new object after every change."""

    def settle(self) -> None:
        """Wait until the table has every policy written before this call; else raise KafkaException or RefusedError."""


class WithoutPolicies:
    """The policies of a router without a policies topic: none."""

    table: PolicyTable = NO_POLICIES

    def settle(self) -> None:
        """Return at once."""

    def learn(self, answers: Mapping[str, object]) -> None:
        """Do nothing with the descriptions of topics."""

    def stop(self) -> None:
        """Do nothing: there is nothing to end."""


WITHOUT_POLICIES: Final = WithoutPolicies()


class EffectiveValue(NamedTuple):
    """An effective value as JSON spells it, and the scope it comes from.

    ``is_default`` says that no policy sets the key, and the configuration leaves it at its default.
    """

    value: object
    origin: str
    is_default: bool = False


def settings_of(table: PolicyTable, config: Config, configured: DelayTopicConfig) -> TopicSettings:
    """Return the settings of a delay topic; ``table`` is the current one, without ended pauses (``PolicyTable.at``).

    Raise ValueError with the key if the policies cannot be reconciled with the configuration.
    """
    merged = _merged(table, configured.name)
    topic = configured.model_copy(update=_of_topic(table, configured.name))
    rules = config.rules_for(topic)
    targets = {name: policy for name, policy in table.targets() if rules.allowed(name)}
    # The rule of a target would start an epoch in vain in a delay topic that may not deliver there.
    ruled = [
        TargetRule(name, policy.max_delay_ms, policy.enabled is not False, policy.spread_ms)
        for name, policy in targets.items()
        if policy.max_delay_ms is not None or policy.enabled is False or policy.spread_ms is not None
    ]
    limits_ms = {name: p.expire_after_ms for name, p in targets.items() if p.expire_after_ms is not None}
    return TopicSettings(
        topic=topic,
        rules=config.rules_for(topic, ruled) if ruled else rules,
        tick_ms=_whole(merged.get("tick_ms", config.router.tick_ms)),
        expiry=Expiry(topic.expire_after_ms, limits_ms),
        timestamps={name: policy.timestamp for name, policy in targets.items() if policy.timestamp is not None},
        paused=bool(merged.get("paused")),
        drained=is_drained(table, configured.name),
        gated={name: _limit(table, config, name, policy) for name, policy in targets.items() if _is_gated(policy)},
        is_doubtful=table.doubts(configured.name),
        why_paused=why_paused(table.policies, configured.name, sorted(targets)),
    )


def is_drained(table: PolicyTable, topic: str) -> bool:
    """Say whether policies stop all partitions of a delay topic from being served."""
    return bool(_merged(table, topic).get("drained"))


def effective(table: PolicyTable, config: Config, topic: str, target: str = "") -> dict[str, EffectiveValue]:
    """Return every key with its value and origin for a delay topic, or for one of its targets."""
    configured = _configured(config.router, config.require_delay_topic(topic))
    usual = _configured(RouterConfig(), DelayTopicConfig(name=topic))
    found = {key: EffectiveValue(value, CONFIGURATION, value == usual[key]) for key, value in configured.items()}
    for scope in (DEFAULT, topic_scope(topic)):
        found |= {key: EffectiveValue(value, str(scope)) for key, value in plain_of(table.get(scope)).items()}
    if not target:
        return found | _terms_of_pause(table, found["paused"].origin)
    scope = target_scope(target)
    said = plain_of(table.get(scope))
    if said.get("enabled") is False:
        # Only a delay topic releases at once.
        said["when_disabled"] = "reject"
    stopped = {key for key, value in _STOPPING.items() if found[key].value is value and said.get(key) is not value}
    own = {key: EffectiveValue(value, str(scope)) for key, value in said.items() if key not in stopped}
    found = {key: own.get(key, found[key]) for key in _TARGET_KEYS}
    return found | _terms_of_pause(table, found["paused"].origin)


def refuse_impossible(table: PolicyTable, config: Config, scope: Scope) -> None:
    """Raise ConfigError if a delay topic cannot work with these policies; ``scope`` is the scope of the new one."""
    if scope.kind is ScopeKind.TOPIC:
        config.require_delay_topic(scope.name, f"policy {scope}: ")
    if scope.kind is ScopeKind.TARGET and scope.name in config.forbidden_targets():
        raise ConfigError(f"policy {scope}: {scope.name} is the router's own and never a target")
    for topic in config.delay_topics:
        if scope.kind is not ScopeKind.TOPIC or scope.name == topic.name:
            try:
                settings_of(table, config, topic)
            except ValueError as error:
                raise ConfigError(f"policy {scope}: with it delay topic {topic.name} cannot work: {error}") from None


def with_policy(table: PolicyTable, scope: Scope, policy: Policy | None) -> PolicyTable:
    """Return the table with one policy set, or removed if ``policy`` is None."""
    policies = {known: each for known, each in table.policies.items() if known != scope}
    if policy is not None:
        policies[scope] = policy
    unreadable = {name: why for name, why in table.unreadable.items() if name != str(scope)}
    return replace(table, policies=policies, unreadable=unreadable, doubtful=table.doubtful - {scope})


def without_reading(table: PolicyTable, name: str, scopes: Iterable[Scope], why: str) -> PolicyTable:
    """Return the table after a record that cannot be understood; the known policy of its scope still holds."""
    doubtful = {scope for scope in scopes if scope not in table.policies}
    return replace(table, unreadable={**table.unreadable, name: why}, doubtful=table.doubtful | doubtful)


def _is_gated(policy: Policy) -> bool:
    return bool(policy.paused or policy.records_per_second or policy.bytes_per_second)


def _limit(table: PolicyTable, config: Config, target: str, policy: Policy) -> TargetLimit:
    sources = [
        topic.name
        for topic in config.delay_topics
        if config.rules_for(topic.model_copy(update=_of_topic(table, topic.name))).allowed(target)
    ]
    rates = policy.records_per_second or 0, policy.bytes_per_second or 0
    return TargetLimit(*rates, paused=bool(policy.paused), sources=tuple(sources))


def _terms_of_pause(table: PolicyTable, origin: str) -> dict[str, EffectiveValue]:
    """Return the end and the reason of a pause, from the policy that decides ``paused``."""
    said = {} if origin == CONFIGURATION else plain_of(table.get(Scope.parse(origin)))
    return {key: EffectiveValue(said.get(key, ""), origin, origin == CONFIGURATION) for key in PAUSE_TERMS}


def _of_topic(table: PolicyTable, topic: str) -> dict[str, object]:
    return {name: value for name, value in _merged(table, topic).items() if name in _OF_TOPIC}


def _merged(table: PolicyTable, topic: str) -> dict[str, object]:
    """Return the attributes that policies set for a delay topic; the more specific policy wins."""
    merged: dict[str, object] = {}
    for scope in (DEFAULT, topic_scope(topic)):
        policy = table.get(scope)
        merged |= {name: value for name in KEYS.values() if (value := getattr(policy, name)) is not None}
    return merged


def _configured(router: RouterConfig, topic: DelayTopicConfig) -> dict[str, object]:
    """Return every key of a policy with its value in the configuration."""
    return {
        "enabled": topic.enabled,
        "when_disabled": topic.when_disabled,
        "max_delay": format_duration(topic.max_delay_ms),
        "tick": format_duration(router.tick_ms),
        "default_target": topic.default_target,
        "allowed_targets": list(topic.allowed_targets),
        "delay": format_duration(topic.delay_ms),
        "spread": format_duration(topic.spread_ms),
        "retry": topic.retry.spelled(),
        "require_time": topic.require_time,
        "unknown_headers": topic.unknown_headers,
        "placement": topic.placement,
        "timestamp": topic.timestamp,
        "expire_after": format_duration(topic.expire_after_ms),
        "paused": False,
        "paused_until": "",
        "paused_reason": "",
        "drained": False,
        "records_per_second": 0,
        "bytes_per_second": "0",
    }


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value

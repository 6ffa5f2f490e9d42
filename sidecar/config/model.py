"""The configuration: one frozen model, read from a TOML file and the environment, and checked before anything runs.

Defaults, descriptions and limits live on the fields, and the reference of all keys is generated from them
(:mod:`sidecar.config.reference`). Every error is a ``ConfigError`` that names key and file; on the command line it is
exit code 2. The file gives a duration or size with its unit; the name of the attribute carries the unit in which the
model keeps it.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import (
    Field,
    ValidationError,
    model_validator,
)

from index.errors import ConfigError
from index.rules.rules import Rules, TargetRule
from index.rules.targets import INTERNAL_PREFIX, of_scheme
from sidecar.config import librdkafka_keys
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.listeners import AdminConfig, Listener
from sidecar.config.problems import Problems, describe, did_you_mean, key_path
from sidecar.config.section import Section
from sidecar.config.sources import KeyPath, read
from sidecar.config.units import Count, DurationMs, SizeBytes
from sidecar.config.value_types import (
    KafkaValue,
    ListenAddress,
    PoliciesTopicName,
    Printable,
    topic_name,
)

_SERVERS: Final = "bootstrap.servers"
_ALIKE: Final = 0.8
"""Least similarity of a key that was meant for another one, as difflib measures it."""


class RouterConfig(Section):
    """``[router]``: settings of the router that hold for all delay topics."""

    group_id: Printable = Field(
        "delay-router",
        min_length=1,
        max_length=200,
        description="Consumer group for assignment, and prefix of every transactional.id.",
    )
    instance_id: Printable = Field(
        "",
        max_length=200,
        description="Static membership: a restart under the same name takes its partitions back at once. "
        "Unique per running router. Empty: a name that is this machine's, given up when the router is stopped.",
    )
    tick_ms: DurationMs = Field(
        10,
        alias="tick",
        le=10_000,
        description="Most time a due record waits to share a transaction with others.",
    )
    lanes: int = Field(
        0,
        ge=0,
        le=100,
        description="Transactional producers that a process shares among its partitions, if it has more of these. One "
        "transaction then releases due records of several partitions. 0: each partition has a producer of its own.",
    )
    batch_records: Count = Field(
        50_000, ge=1, le=1_000_000, description="Most records released, or indexed, within one transaction."
    )
    payload_memory_bytes: SizeBytes = Field(
        512 << 20,
        alias="payload_memory",
        description="Most payload of pending records in memory, for all partitions of this process together. When it "
        "is nearly used up, nothing is read for up to 30 s, and then each record is read again when it is due.",
    )
    session_timeout_ms: DurationMs = Field(
        10_000,
        alias="session_timeout",
        ge=1_000,
        le=1_800_000,
        description="Time without a sign of life after which the partitions of a router go to another one. "
        "Brokers refuse less than their group.min.session.timeout.ms (6s).",
    )
    transaction_timeout_ms: DurationMs = Field(
        60_000,
        alias="transaction_timeout",
        ge=1_000,
        le=900_000,
        description="Time after which the broker aborts an open transaction. The router gives one up when the "
        "brokers take none of its records for a sixth of this time. "
        "Brokers refuse more than their transaction.max.timeout.ms (15m).",
    )
    policies_topic: PoliciesTopicName = Field(
        "__delay_router_policies",
        description="Compacted topic of the policies that may be changed while the router runs; the same for all "
        "routers that are to follow them. Empty: no policies, and the configuration alone decides.",
    )
    status_topic: PoliciesTopicName = Field(
        "__delay_router_status",
        description="Topic in which each router of the group reports its partitions, so that each can answer for all. "
        "Empty: no reports, and a router answers for its own partitions only.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level of the log lines that are written."
    )
    allow_sasl_plaintext: bool = Field(
        False,
        description="Let credentials travel unencrypted: SASL_PLAINTEXT, or an OAuth token endpoint over http. "
        "For a network that nobody else can listen to.",
    )
    msk_region: str = Field(
        "",
        pattern=r"^([a-z]{2}(-[a-z]+)+-[0-9]+)?$",
        description="AWS region of an Amazon MSK cluster that is connected to by IAM: tokens are signed with the "
        "credentials that the AWS SDK finds. Needs SASL_SSL with OAUTHBEARER, and the extra 'msk'.",
    )
    tracing: bool = Field(
        False,
        description="Send a span of OpenTelemetry for each released record with a sampled traceparent header, as the "
        "variables OTEL_EXPORTER_OTLP_* say; needs the extra 'tracing'.",
    )


class HttpConfig(Listener):
    """``[http]``: probes and metrics."""

    listen: ListenAddress = Field(
        "127.0.0.1:8080",
        description="Address of /livez, /readyz and /metrics. They show topic names and counts, no records; "
        "to let a probe or Prometheus in from outside, 0.0.0.0:8080.",
    )


class Config(Section):
    """The whole configuration, checked for consistency between sections."""

    kafka: dict[str, KafkaValue] = Field(
        description="Settings of librdkafka, passed on unchanged, security included; bootstrap.servers is required.",
    )
    router: RouterConfig = RouterConfig()
    http: HttpConfig = HttpConfig()
    admin: AdminConfig = AdminConfig()
    delay_topics: tuple[DelayTopicConfig, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        problems = [*self._kafka_problems(), *self._role_problems(), *self._target_problems()]
        # Rules check the same names once more, so their problems are new only when all names are right.
        if problems := problems or [*self._rules_problems()]:
            raise Problems(problems)
        return self

    def rules_for(self, topic: DelayTopicConfig, target_rules: Iterable[TargetRule] = ()) -> Rules:
        """Return the rules in force for one delay topic, with every topic of the router as a forbidden target."""
        return Rules(
            topic=topic.name,
            default_target=topic.default_target,
            allowed_targets=topic.allowed_targets,
            max_delay_ms=topic.max_delay_ms,
            aliases=tuple(alias for configured in topic.aliases for alias in configured.expanded()),
            forbidden_targets=self.forbidden_targets(),
            enabled=topic.enabled or topic.when_disabled == "release",
            at_once=not topic.enabled and topic.when_disabled == "release",
            target_rules=tuple(target_rules),
            require_time=topic.require_time,
            ignores_unknown=topic.unknown_headers == "ignore",
            recurring=topic.recurring,
            min_period_ms=topic.min_period_ms,
            delay_ms=topic.delay_ms,
            spread_ms=topic.spread_ms,
            retry=topic.retry.rule,
        )

    def forbidden_targets(self) -> frozenset[str]:
        """Return the names of all topics that the router keeps; they are never a target, even if a pattern fits."""
        own = {name for topic in self.delay_topics for _, _, name in topic.roles()}
        # A name with the internal prefix is never a target anyway, and the state of every delay topic keeps each name.
        shared = {self.router.policies_topic, self.router.status_topic}
        return frozenset(own | {name for name in shared if name and not name.startswith(INTERNAL_PREFIX)})

    def owner_of(self, place: tuple[str, int]) -> tuple[str, int] | None:
        """Return the delay partition that alone writes to a place; None for a target or a rejected topic.

        A partition of a rejected topic may have records of several delay partitions.
        """
        name, partition = place
        for topic in self.delay_topics:
            if name != topic.rejected and name in {own for _, _, own in topic.roles()}:
                return topic.name, partition
        return None

    @property
    def bootstrap(self) -> str:
        """Configured bootstrap servers."""
        return self.kafka.get("bootstrap.servers") or self.kafka.get("metadata.broker.list", "")

    def delay_topic(self, name: str) -> DelayTopicConfig | None:
        """Return the configured delay topic of that name, or None."""
        return next((topic for topic in self.delay_topics if topic.name == name), None)

    def require_delay_topic(self, name: str, asked_by: str = "") -> DelayTopicConfig:
        """Return the delay topic of that name; raise ConfigError, which lists the existing names, if there is none.

        ``asked_by`` begins the text of the error.
        """
        topic = self.delay_topic(name)
        if topic is None:
            known = [each.name for each in self.delay_topics]
            close = did_you_mean(name, known)
            raise ConfigError(f"{asked_by}{name} is not a configured delay topic ({', '.join(known)}){close}")
        return topic

    def require_delay_topics(self) -> None:
        """Raise ConfigError if no delay topic is configured, for commands that need at least one."""
        if not self.delay_topics:
            raise ConfigError(
                "delay_topics: no delay topic is configured; add a [[delay_topics]] table with a name, or set"
                """ DELAY_ROUTER__DELAY_TOPICS='[{"name": "orders.delay"}]'"""
            )

    def _kafka_problems(self) -> Iterator[tuple[KeyPath, str]]:
        if not self.kafka.get("bootstrap.servers") and not self.kafka.get("metadata.broker.list"):
            close = get_close_matches(_SERVERS, self.kafka, n=1, cutoff=_ALIKE)
            meant = f'; did you mean it by "{close[0]}"?' if close else ""
            yield ("kafka", _SERVERS), f'required, as in "{_SERVERS}" = "localhost:9092"{meant}'
        for key, value in self.kafka.items():
            if problem := librdkafka_keys.refusal(key, value):
                yield ("kafka", key), problem
        if not self.router.allow_sasl_plaintext:
            for key, problem in librdkafka_keys.in_the_clear(self.kafka):
                yield ("kafka", key), f"{problem}, or set router.allow_sasl_plaintext = true"
        if self.router.msk_region:
            for key, problem in librdkafka_keys.against_signed_tokens(self.kafka):
                yield ("kafka", key), problem

    def _role_problems(self) -> Iterator[tuple[KeyPath, str]]:
        seen: dict[str, tuple[str, KeyPath]] = {}
        status, policies = self.router.status_topic, self.router.policies_topic
        if status and status == policies:
            yield ("router", "status_topic"), f"{status!r} is already the policies topic; name another topic"
        for number, topic in enumerate(self.delay_topics):
            for role, key, name in topic.roles():
                place: KeyPath = ("delay_topics", number, key)
                try:
                    topic_name(name)
                except ValueError as error:
                    yield place, str(error)
                other_role, other_place = seen.setdefault(name, (role, place))
                shared = role == other_role == "rejected topic"
                if other_place != place and not shared:
                    where = key_path(other_place)
                    yield place, f"{name!r} is already the {other_role} ({where}); name another topic"

    def _target_problems(self) -> Iterator[tuple[KeyPath, str]]:
        forbidden = self.forbidden_targets()
        for number, topic in enumerate(self.delay_topics):
            named = [("default_target", topic.default_target), *(("allowed_targets", t) for t in topic.allowed_targets)]
            named.append(("retry", topic.dead_letter))
            for key, name in named:
                if name in forbidden:
                    yield ("delay_topics", number, key), f"{name!r} is the router's own and never a target"
                elif problem := of_scheme(name):
                    yield ("delay_topics", number, key), f"{name!r}: {problem}"

    def _rules_problems(self) -> Iterator[tuple[KeyPath, str]]:
        for number, topic in enumerate(self.delay_topics):
            try:
                self.rules_for(topic)
            except ValueError as error:
                yield ("delay_topics", number), str(error)


def load(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """Load the configuration from `path` (else ``DELAY_ROUTER_CONFIG``, else ``./delay-router.toml``) and environment.

    Raise ConfigError with one line per problem; each line names key and file (or variable).
    """
    sources = read(path, os.environ if environ is None else environ)
    raw: dict[str, Any] = {"kafka": {}, **sources.raw}
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(describe(error, sources, Config)) from None

"""``[[delay_topics]]``: the configuration of one delay topic."""

from collections.abc import Iterator
from typing import Final, Literal, Self

from pydantic import Field, StrictBool, model_validator

from index.buckets.bucket_rules import SealRules
from index.protocol.headers import PRESETS, Alias, HeaderRole, Unit
from sidecar.config.retry import NO_RETRY, RetryConfig
from sidecar.config.section import Section
from sidecar.config.units import Count, DurationMs, SizeBytes, format_duration
from sidecar.config.value_types import OptionalTopicName, TargetPattern, TopicName

DAY_MS: Final = 86_400_000

HOW_TO_DELIVER: Final = "delay-router init --deliver-existing"
"""Command that lets a router deliver the records that a delay topic held before any router served it."""

MAX_SEGMENTS_SEALED: Final = 5_000
"""Most segments of one sealed bucket; a manifest holds 20,000, and a merge joins four buckets."""


class AliasConfig(Section):
    """Headers of another system: either a whole preset, or one header by name, role and unit."""

    preset: Literal[
        "", "activemq", "cesium", "dapr", "etf1", "karafka", "nservicebus", "pulsar", "rabbitmq", "timebridge"
    ] = Field("", description='All headers of a system; written as a plain string: aliases = ["cesium"].')
    name: str = Field("", max_length=255, description="The header's name.")
    role: Literal["", "at", "after", "to", "key", "partition", "id", "expire-after", "ignored"] = Field(
        "",
        description="Role of the control header deliver-<role> that it stands for; ignored: only removed on release.",
    )
    unit: Literal["native", "ms", "s", "us", "be-ms", "rfc3339", "iso8601", "nservicebus"] = Field(
        "native",
        description="Format of the times of at, after and expire-after; native: as deliver-at and deliver-after "
        "are; us: microseconds; be-ms: milliseconds as a big-endian binary number of 1 to 8 bytes; nservicebus: "
        "2030-01-31 08:00:00:000000 Z.",
    )

    @model_validator(mode="before")
    @classmethod
    def _preset_as_text(cls, raw: object) -> object:
        return {"preset": raw} if isinstance(raw, str) else raw

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.preset and (self.name or self.role):
            raise ValueError("an alias is either the name of a preset or a table with name, role and unit")
        if not self.preset and not (self.name and self.role):
            raise ValueError('an alias needs name and role, as in {name = "x-due", role = "at", unit = "s"}')
        return self

    def expanded(self) -> tuple[Alias, ...]:
        """Return the headers that the alias stands for, in the terms of ``index.protocol.headers``."""
        return PRESETS[self.preset] if self.preset else (Alias(self.name, HeaderRole(self.role), Unit(self.unit)),)


class DelayTopicConfig(Section):
    """``[[delay_topics]]``: one delay topic and the rules for its deliveries."""

    name: TopicName = Field(description="Name of the delay topic, to which producers write.")
    enabled: bool = Field(
        True,
        description="While false, records that come in are treated as when_disabled says; pending ones are released.",
    )
    when_disabled: Literal["reject", "release"] = Field(
        "reject",
        description="Reject records that arrive while enabled is false, with DELAY_DISABLED, or release them at once.",
    )
    default_target: OptionalTopicName = Field("", description="Target topic of records without deliver-to.")
    allowed_targets: tuple[TargetPattern, ...] = Field(
        (),
        description="Topics that deliver-to may name; '*' is the only wildcard, the whole name has to match. "
        "Empty: only default_target.",
    )
    max_delay_ms: DurationMs = Field(
        7 * DAY_MS,
        alias="max_delay",
        description='Longest time between a record\'s timestamp and its due time; "0": no limit.',
    )
    expire_after_ms: DurationMs = Field(
        0,
        alias="expire_after",
        description="A record released later than this after its due time is rejected with EXPIRED instead, unless its "
        'deliver-expire-after says otherwise; "0": no limit.',
    )
    on_unreadable: Literal["reject", "stop"] = Field(
        "reject",
        description="Reject a batch that the client cannot read, such as one that unpacks to more than "
        "receive.message.max.bytes: step over it, count it as lost and note it in the rejected topic. Or stop the "
        "partition.",
    )
    timestamp: Literal["release", "due", "source"] = Field(
        "release", description="Timestamp of a released record: the time when it is released, was due, or was sent."
    )
    aliases: tuple[AliasConfig, ...] = Field(
        (),
        description=f"Headers of other systems that mean the same: presets ({', '.join(PRESETS)}) "
        'or tables {name = "x-due", role = "at", unit = "s"}.',
    )
    delay_ms: DurationMs = Field(
        0,
        alias="delay",
        description="Delay of records that name no time, from their timestamp on: for clients that cannot set headers. "
        '"0": they are released at once.',
    )
    spread_ms: DurationMs = Field(
        0,
        alias="spread",
        le=DAY_MS,
        description="Records due at one instant leave evenly over this span after it, none early, so that a burst does"
        ' not hit consumers at once; a target may have its own, by policy. "0": as soon as they are due.',
    )
    require_time: StrictBool = Field(
        False,
        description="Reject records without deliver-at and deliver-after, instead of releasing them at once. Where "
        "there is a delay, none is rejected for that.",
    )
    unknown_headers: Literal["reject", "ignore"] = Field(
        "reject",
        description="Reject records with a deliver-* header that does not exist, with INVALID_SCHEDULE; or ignore the "
        "header, which is then only removed on release.",
    )
    recurring: StrictBool = Field(
        False,
        description="Accept recurring schedules (deliver-every, deliver-cron); needs Write on the delay topic, to "
        "which the next occurrence of each is written. False: they are rejected with INVALID_SCHEDULE.",
    )
    min_period_ms: DurationMs = Field(
        1_000,
        alias="min_period",
        ge=1,
        le=DAY_MS,
        description="Shortest time between two occurrences of a recurring schedule; a schedule with a shorter one is "
        "rejected.",
    )
    retry: RetryConfig = Field(
        NO_RETRY,
        description="Count the attempts of each record: it comes back after a wait that grows with each attempt, and"
        " after the last one it goes to the dead-letter topic. Its keys are below.",
    )
    placement: Literal["inline", "pointer", "auto"] = Field(
        "auto",
        description="Where snapshots keep the payload: in the segment (inline), in the delay topic only (pointer), or "
        "whichever costs less to read at release (auto). Pointers need a retention above max_delay; where that of the "
        "topic is shorter, auto is inline.",
    )
    seal_records: Count = Field(
        100_000, ge=1, le=1_000_000, description="A bucket is sealed when this many records are pending in memory."
    )
    seal_age_ms: DurationMs = Field(
        60_000,
        alias="seal_age",
        ge=100,
        description="A bucket is sealed this long after its first record was indexed, even when it is small.",
    )
    seal_beyond_ms: DurationMs = Field(
        30_000,
        alias="seal_beyond",
        description="Entries due sooner than this are no reason to seal a bucket: they are released from memory.",
    )
    time_step_ms: DurationMs = Field(
        300_000, alias="time_step", ge=1_000, description="Longest span of due times in one segment (PIP-195)."
    )
    segment_records: Count = Field(2_000, ge=1, le=50_000, description="Most records in one segment.")
    segment_bytes: SizeBytes = Field(
        512 << 10, ge=1_024, le=900_000, description="Most payload in one segment, which is one record."
    )
    max_buckets: Count = Field(
        24, ge=2, le=1_000, description="With more buckets than this per partition, neighbours are merged."
    )
    trim: bool = Field(
        False,
        description="Remove records that nobody needs from the delay topic, with DeleteRecords; needs DELETE on it. "
        "A damaged segment can then no longer be made good from the delay topic.",
    )
    state_topic: OptionalTopicName = Field("", description="Progress and manifests; empty: <name>.delay-state.")
    snapshots_topic: OptionalTopicName = Field("", description="Segments; empty: <name>.delay-snapshots.")
    rejected_topic: OptionalTopicName = Field("", description="Rejected records; empty: <name>.rejected.")
    backfill_topic: OptionalTopicName = Field("", description="Staged backfills; empty: <name>.delay-backfill.")
    receipts_topic: OptionalTopicName = Field("", description="Receipts of controls; empty: <name>.receipts.")

    @model_validator(mode="after")
    def _delay_within_limit(self) -> Self:
        if 0 < self.max_delay_ms < self.delay_ms:
            raise ValueError(
                f"delay = {format_duration(self.delay_ms)} is over max_delay = {format_duration(self.max_delay_ms)}:"
                " each record without a time would be rejected; raise max_delay"
            )
        return self

    @model_validator(mode="after")
    def _retry_alone(self) -> Self:
        if not self.retry.attempts:
            return self
        if self.recurring or self.delay_ms:
            other = "recurring" if self.recurring else "delay"
            raise ValueError(f"retry and {other} exclude each other; use a delay topic of its own for each")
        if self.retry.max_ms < self.retry.first_ms:
            first, most = format_duration(self.retry.first_ms), format_duration(self.retry.max_ms)
            raise ValueError(f"retry.max = {most} is below retry.first = {first}; raise retry.max")
        if 0 < self.max_delay_ms < self.retry.max_ms:
            most, limit = format_duration(self.retry.max_ms), format_duration(self.max_delay_ms)
            raise ValueError(
                f"retry.max = {most} is over max_delay = {limit}: records that wait so long would be rejected; raise"
                " max_delay"
            )
        return self

    @model_validator(mode="after")
    def _few_segments(self) -> Self:
        if self.seal_records > self.segment_records * MAX_SEGMENTS_SEALED:
            raise ValueError(
                f"seal_records = {self.seal_records} in segments of segment_records = {self.segment_records} are more"
                f" than {MAX_SEGMENTS_SEALED} segments; raise segment_records"
            )
        return self

    @property
    def longest_delay_ms(self) -> int:
        """Longest time that a record waits, with its spread; 0 says that there is no limit."""
        return self.max_delay_ms and self.max_delay_ms + self.spread_ms

    @property
    def seal_rules(self) -> SealRules:
        """Rules that say when to seal a bucket, and how to cut it into segments."""
        return SealRules(
            max_entries=self.seal_records,
            max_age_ms=self.seal_age_ms,
            time_step_ms=self.time_step_ms,
            segment_entries=self.segment_records,
            segment_bytes=self.segment_bytes,
            placement=self.placement,
            soon_ms=self.seal_beyond_ms,
        )

    @property
    def state(self) -> str:
        """Effective name of the state topic."""
        return self.state_topic or f"{self.name}.delay-state"

    @property
    def snapshots(self) -> str:
        """Effective name of the snapshots topic."""
        return self.snapshots_topic or f"{self.name}.delay-snapshots"

    @property
    def rejected(self) -> str:
        """Effective name of the rejected topic."""
        return self.rejected_topic or f"{self.name}.rejected"

    @property
    def backfill(self) -> str:
        """Effective name of the backfill topic."""
        return self.backfill_topic or f"{self.name}.delay-backfill"

    @property
    def receipts(self) -> str:
        """Effective name of the receipts topic."""
        return self.receipts_topic or f"{self.name}.receipts"

    @property
    def dead_letter(self) -> str:
        """Target of records without an attempt left; empty where attempts are not counted."""
        return self.retry.dead_letter if self.retry.attempts else ""

    def named_targets(self) -> Iterator[str]:
        """Yield the targets named without a wildcard, the default target first, none twice."""
        named = [self.default_target, *(target for target in self.allowed_targets if "*" not in target)]
        named.append(self.dead_letter)
        yield from dict.fromkeys(target for target in named if target)

    def roles(self) -> Iterator[tuple[str, str, str]]:
        """Yield (role, configuration key, effective name) of each topic that the router keeps for this delay topic."""
        yield "delay topic", "name", self.name
        yield "state topic", "state_topic", self.state
        yield "snapshots topic", "snapshots_topic", self.snapshots
        yield "rejected topic", "rejected_topic", self.rejected
        yield "backfill topic", "backfill_topic", self.backfill
        yield "receipts topic", "receipts_topic", self.receipts

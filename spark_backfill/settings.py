"""The part of the router's configuration that the jobs use: the same TOML file and environment variables.

The router checks its configuration when it starts, so nothing is checked twice here: keys that the jobs do not use are
ignored, and the others only have to be readable. A test checks that the rules made here equal the router's.
"""

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from index.buckets.bucket_rules import PlacementRule, SealRules
from index.errors import ConfigError
from index.protocol.headers import PRESETS, Alias, HeaderRole, Unit
from index.rules.retrying import Retry, thousandths
from index.rules.rules import Rules
from index.rules.targets import INTERNAL_PREFIX

ENV_FILE: Final = "DELAY_ROUTER_CONFIG"
ENV_PREFIX: Final = "DELAY_ROUTER__"
DEFAULT_FILE: Final = Path("delay-router.toml")
POLICIES_TOPIC: Final = "__delay_router_policies"

_FILE: Final = "_file"
"""Ending of a key that names a file with the secret in it."""

_DURATION_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE_BYTES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True, slots=True)
class DelayTopic:
    """One delay topic: its rules, the topics beside it, and how its segments are cut."""

    rules: Rules
    state: str
    snapshots: str
    rejected: str
    backfill: str
    receipts: str
    seal_rules: SealRules

    @property
    def name(self) -> str:
        """Name of the delay topic."""
        return self.rules.topic


@dataclass(frozen=True, slots=True)
class Settings:
    """The configuration as the jobs see it; ``kafka`` are librdkafka's keys."""

    kafka: dict[str, str]
    group_id: str
    delay_topics: tuple[DelayTopic, ...]
    source: str
    policies_topic: str = POLICIES_TOPIC

    def delay_topic(self, name: str) -> DelayTopic:
        """Return the delay topic of that name; raise ConfigError when none is configured."""
        for topic in self.delay_topics:
            if topic.name == name:
                return topic
        known = ", ".join(topic.name for topic in self.delay_topics) or "none"
        raise ConfigError(f"{self.source}: {name!r} is not a configured delay topic; those are: {known}")


def load(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the configuration of ``path`` (else ``DELAY_ROUTER_CONFIG``, else ``./delay-router.toml``) and environment.

    Raises ConfigError, naming key and file.
    """
    environ = os.environ if environ is None else environ
    chosen = path or Path(environ.get(ENV_FILE) or DEFAULT_FILE)
    overlaid = any(name.upper().startswith(ENV_PREFIX) for name in environ)
    absent = chosen == DEFAULT_FILE and overlaid and not chosen.exists()
    raw = {} if absent else _read(chosen)
    _overlay(raw, environ)
    return _settings(raw, "environment" if absent else str(chosen))


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{file}: no such configuration file; name the router's with --config FILE") from None
    except OSError as error:
        raise ConfigError(f"{file}: the configuration cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file}: not readable as TOML: {error}") from None


def _overlay(raw: dict[str, Any], environ: Mapping[str, str]) -> None:
    raw["kafka"] = dict(_dotted(_table(raw, "kafka"), ""))
    for name, value in sorted(environ.items()):
        if not name.upper().startswith(ENV_PREFIX):
            continue
        section, _, key = name[len(ENV_PREFIX) :].lower().partition("__")
        if section == "delay_topics":
            try:
                raw[section] = json.loads(value)
            except ValueError as error:
                raise ConfigError(f"environment variable {name}: not readable as JSON: {error}") from None
        elif section == "kafka":
            _overlay_kafka(raw["kafka"], key, value)
        else:
            raw.setdefault(section, {})[key] = value
    for key in [key for key in raw["kafka"] if key.endswith(_FILE)]:
        raw["kafka"][key.removesuffix(_FILE)] = _secret(key, raw["kafka"].pop(key))


def _overlay_kafka(kafka: dict[str, str], spelled: str, value: str) -> None:
    """Set a key: ``sasl_password_file`` is ``sasl.password_file``, which replaces the password.

    Keys of librdkafka that name files of its own keep their spelling.
    """
    key = spelled.replace("_", ".")
    if spelled.endswith(_FILE) and not key.startswith("sasl.oauthbearer.assertion."):
        key = spelled.removesuffix(_FILE).replace("_", ".") + _FILE
    kafka.pop(key.removesuffix(_FILE) if key.endswith(_FILE) else key + _FILE, None)
    kafka[key] = value


def _secret(key: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, ValueError):
        raise ConfigError(f'kafka."{key}": {path}: the file cannot be read') from None


def _dotted(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield dotted keys: keys without quotes are nested tables with the same meaning.

    Values are in librdkafka's spelling.
    """
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield prefix + key, str(value).lower() if isinstance(value, bool) else str(value)


def _settings(raw: Mapping[str, Any], source: str) -> Settings:
    kafka = raw["kafka"]
    if not kafka.get("bootstrap.servers") and not kafka.get("metadata.broker.list"):
        raise ConfigError(f'{source}: kafka."bootstrap.servers": required, as in "localhost:9092"')
    if _table(raw, "router").get("msk_region"):
        raise ConfigError(
            f"{source}: router.msk_region: jobs do not sign tokens for Amazon MSK; give them a configuration of their"
            " own, with SCRAM or a client certificate"
        )
    tables = raw.get("delay_topics", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) and table.get("name") for table in tables):
        raise ConfigError(f"{source}: delay_topics: a list of tables, each with a name")
    forbidden = frozenset(name for table in tables for name in _names(table))
    shared = {str(_table(raw, "router").get(key, "")) for key in ("policies_topic", "status_topic")}
    forbidden |= {name for name in shared if name and not name.startswith(INTERNAL_PREFIX)}
    topics = []
    for table in tables:
        try:
            topics.append(_delay_topic(table, forbidden))
        except (ValueError, TypeError, LookupError) as error:
            raise ConfigError(f"{source}: delay topic {table['name']!r}: {error}") from error
    router = _table(raw, "router")
    policies_topic = str(router.get("policies_topic", POLICIES_TOPIC))
    return Settings(kafka, str(router.get("group_id", "delay-router")), tuple(topics), source, policies_topic)


def _names(table: Mapping[str, Any]) -> tuple[str, str, str, str, str, str]:
    """Return the names of the delay topic and of its state, snapshots, rejected, backfill and receipts topics."""
    name = table["name"]
    return (
        name,
        table.get("state_topic") or f"{name}.delay-state",
        table.get("snapshots_topic") or f"{name}.delay-snapshots",
        table.get("rejected_topic") or f"{name}.rejected",
        table.get("backfill_topic") or f"{name}.delay-backfill",
        table.get("receipts_topic") or f"{name}.receipts",
    )


def _delay_topic(table: Mapping[str, Any], forbidden: frozenset[str]) -> DelayTopic:
    _, state, snapshots, rejected, backfill, receipts = _names(table)
    enabled, releases = table.get("enabled", True), table.get("when_disabled", "reject") == "release"
    rules = Rules(
        topic=table["name"],
        default_target=table.get("default_target", ""),
        allowed_targets=tuple(table.get("allowed_targets", ())),
        max_delay_ms=_quantity(table, "max_delay", _DURATION_MS, "7d"),
        aliases=tuple(alias for each in table.get("aliases", ()) for alias in _aliases(each)),
        forbidden_targets=forbidden,
        enabled=enabled or releases,
        at_once=not enabled and releases,
        require_time=table.get("require_time", False),
        ignores_unknown=table.get("unknown_headers", "reject") == "ignore",
        recurring=table.get("recurring", False),
        min_period_ms=_quantity(table, "min_period", _DURATION_MS, "1s"),
        delay_ms=_quantity(table, "delay", _DURATION_MS, "0"),
        spread_ms=_quantity(table, "spread", _DURATION_MS, "0"),
        retry=_retry(_table(table, "retry")),
    )
    seal_rules = SealRules(
        time_step_ms=_quantity(table, "time_step", _DURATION_MS, "5m"),
        segment_entries=int(table.get("segment_records", 2_000)),
        segment_bytes=_quantity(table, "segment_bytes", _SIZE_BYTES, "512KiB"),
        placement=_placement(table.get("placement", "auto")),
    )
    return DelayTopic(rules, state, snapshots, rejected, backfill, receipts, seal_rules)


def _retry(table: Mapping[str, Any]) -> Retry | None:
    if not table.get("attempts", 0):
        return None
    return Retry(
        _quantity(table, "first", _DURATION_MS, "1s"),
        thousandths(table.get("factor", 2)),
        _quantity(table, "max", _DURATION_MS, "1h"),
        thousandths(table.get("jitter", 0)),
        int(table["attempts"]),
        table.get("dead_letter", ""),
    )


def _placement(text: str) -> PlacementRule:
    if text not in ("inline", "pointer", "auto"):
        raise ValueError(f"placement: one of inline, pointer, auto, not {text!r}")
    return cast("PlacementRule", text)


def _aliases(configured: str | Mapping[str, str]) -> tuple[Alias, ...]:
    if isinstance(configured, str):
        return PRESETS[configured]
    if configured.get("preset"):
        return PRESETS[configured["preset"]]
    return (Alias(configured["name"], HeaderRole(configured["role"]), Unit(configured.get("unit", "native"))),)


def _quantity(table: Mapping[str, Any], key: str, units: Mapping[str, int], default: str) -> int:
    raw = table.get(key, default)
    match = re.fullmatch(r"([0-9]{1,15})([A-Za-z]*)", str(raw))
    if match is None or (match[2] not in units and (match[2] or int(match[1]))):
        raise ValueError(f"{key}: a number with one of the units {', '.join(units)}, not {raw!r}")
    return int(match[1]) * units.get(match[2], 0)


def _table(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = raw.get(key, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{key}: a table is needed, as in [{key}]")
    return table

"""Renders the effective configuration and the reference of all keys, both from the model."""

import json
import typing
from collections.abc import Callable, Mapping
from typing import Final, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.librdkafka_keys import LIMITED, REFUSED, masked
from sidecar.config.listeners import AdminConfig
from sidecar.config.model import Config, HttpConfig, RouterConfig
from sidecar.config.retry import RetryConfig
from sidecar.config.sources import ENV_PREFIX
from sidecar.config.units import (
    DurationMs,
    SizeBytes,
    Thousandths,
    format_duration,
    format_size,
    format_thousandths,
)

_UNITS: Final[Mapping[object, tuple[str, Callable[[int], object]]]] = {
    typing.get_args(Thousandths)[1]: ("number", format_thousandths),
    typing.get_args(DurationMs)[1]: ("duration", format_duration),
    typing.get_args(SizeBytes)[1]: ("size", format_size),
}

_INTRODUCTION: Final = f"""\
One TOML file: `--config FILE`, else `DELAY_ROUTER_CONFIG`, else `./delay-router.toml`. Every key also by environment,
which wins: `{ENV_PREFIX}<SECTION>__<KEY>`; delay topics as JSON in `{ENV_PREFIX}DELAY_TOPICS`. Unknown keys are errors.
Durations are written `500ms`, `10s`, `5m`, `36h`, `7d`; sizes `64KiB`, `512MiB`.
"""

_KAFKA: Final = f"""\
{Config.model_fields["kafka"].description}
By environment with dots as underscores: `{ENV_PREFIX}KAFKA__BOOTSTRAP_SERVERS`. A secret may be given by a file that
holds it: `"sasl.password_file"`, or `{ENV_PREFIX}KAFKA__SASL_PASSWORD_FILE`; likewise every key that
`delay-router config` masks. Files are read at the start. Not allowed are:
"""


def effective(config: Config) -> dict[str, object]:
    """Return every key with its effective value as the file spells it; secrets masked, topic names filled in."""
    return {
        "kafka": masked(config.kafka),
        "router": _values(config.router),
        "http": _values(config.http),
        "admin": _values(config.admin),
        "delay_topics": [_topic(topic) for topic in config.delay_topics],
    }


def render_effective(config: Config) -> str:
    """Return the effective configuration as TOML."""
    tables: list[tuple[str, Mapping[str, object]]] = [
        ("[kafka]", masked(config.kafka)),
        ("[router]", _values(config.router)),
        ("[http]", _values(config.http)),
        ("[admin]", _values(config.admin)),
        *(("[[delay_topics]]", _topic(topic)) for topic in config.delay_topics),
    ]
    return "\n".join(
        line for head, table in tables for line in (head, *(_toml_line(key, value) for key, value in table.items()), "")
    )


def render_reference() -> str:
    """Return the reference as Markdown: a table of keys for each section, with type, default and meaning."""
    parts = [
        "# Configuration\n",
        _INTRODUCTION,
        "## `[kafka]`\n",
        _KAFKA,
        _table(("key", "reason, or replacement"), [(f"`{key}`", reason) for key, reason in REFUSED.items()]),
        "Allowed with some values only are:\n",
        _table(("key", "allowed"), [(f"`{key}`", allowed) for key, allowed in LIMITED.items()]),
    ]
    sections: list[tuple[str, type[BaseModel]]] = [
        ("`[router]`", RouterConfig),
        ("`[http]`", HttpConfig),
        ("`[admin]`", AdminConfig),
        ("`[[delay_topics]]`", DelayTopicConfig),
        ("`retry` of a delay topic", RetryConfig),
    ]
    for title, model in sections:
        rows = [_row(name, field) for name, field in model.model_fields.items()]
        parts += [f"## {title}\n", _table(("key", "type", "default", "meaning"), rows)]
    return "\n".join(parts)


def _row(name: str, field: FieldInfo) -> tuple[str, ...]:
    default = "required" if field.is_required() else f"`{_toml(_spelled(field, field.default))}`"
    return f"`{field.alias or name}`", _type_name(field), default, field.description or ""


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def _type_name(field: FieldInfo) -> str:
    for mark in field.metadata:
        if mark in _UNITS:
            return _UNITS[mark][0]
    if typing.get_origin(field.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in typing.get_args(field.annotation))
    if typing.get_origin(field.annotation) is tuple:
        return "list"
    if field.annotation is RetryConfig:
        return "table"
    if field.annotation is bool:
        return "true or false"
    return "number" if field.annotation is int else "text"


def _topic(topic: DelayTopicConfig) -> dict[str, object]:
    effective_names: dict[str, object] = {
        "state_topic": topic.state,
        "snapshots_topic": topic.snapshots,
        "rejected_topic": topic.rejected,
        "backfill_topic": topic.backfill,
        "receipts_topic": topic.receipts,
    }
    aliases = [alias.preset or {"name": alias.name, "role": alias.role, "unit": alias.unit} for alias in topic.aliases]
    return _values(topic) | effective_names | {"aliases": aliases}


def _values(model: BaseModel) -> dict[str, object]:
    fields = type(model).model_fields
    return {field.alias or name: _spelled(field, getattr(model, name)) for name, field in fields.items()}


def _spelled(field: FieldInfo, value: object) -> object:
    """Return a value as the file spells it: durations and sizes with their unit."""
    if isinstance(value, RetryConfig):
        return value.spelled()
    if isinstance(value, int):
        for mark in field.metadata:
            if mark in _UNITS:
                return _UNITS[mark][1](value)
    return list(value) if isinstance(value, tuple) else value


def _toml_line(key: str, value: object) -> str:
    return f"{key if '.' not in key else json.dumps(key)} = {_toml(value)}"


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    # A basic string of TOML has the escapes of JSON, except for DEL, which the models refuse.
    return json.dumps(value, ensure_ascii=False)

"""Writes the part of the chart's ``values.schema.json`` that describes the configuration file.

It follows from the router's own model; ``python -m tests.helm.schema`` writes it anew, and a test fails if it is old.
"""

import json
import typing
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sidecar.config.delay_topic import AliasConfig, DelayTopicConfig
from sidecar.config.librdkafka_keys import HARMLESS
from sidecar.config.model import RouterConfig
from sidecar.config.retry import RetryConfig
from sidecar.config.units import DurationMs, SizeBytes, Thousandths

FILE: Final = Path(__file__).parents[2] / "helm" / "delay-router" / "values.schema.json"

SET_BY_THE_CHART: Final = frozenset({"instance_id"})
"""Keys of ``[router]`` that the user must not set: every pod has its own name."""

_PATTERNS: Final = {
    typing.get_args(DurationMs)[1]: "^(0|[0-9]{1,15}(ms|s|m|h|d))$",
    typing.get_args(SizeBytes)[1]: "^(0|[0-9]{1,15}(B|KiB|MiB|GiB))$",
}
_PLAIN: Final[dict[object, str]] = {bool: "boolean", int: "integer", str: "string"}


def definitions() -> dict[str, Any]:
    """Return closed schemas of the sections of the configuration file."""
    anything = {"type": ["string", "integer", "boolean"]}
    return {
        "alias": {"oneOf": [{"type": "string"}, _section(AliasConfig)]},
        "delay_topic": _section(DelayTopicConfig),
        # Only the keys that `delay-router config` may show: others could be secrets, and the values end in a ConfigMap.
        "kafka": _closed(dict.fromkeys(sorted(HARMLESS), anything)),
        "router": _section(RouterConfig, without=SET_BY_THE_CHART),
    }


def updated(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with these definitions in place of its own."""
    return {**schema, "definitions": definitions()}


def _section(model: type[BaseModel], without: frozenset[str] = frozenset()) -> dict[str, Any]:
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    section = _closed({key: _property(field) for key, field in fields.items() if key not in without})
    required = [key for key, field in fields.items() if field.is_required()]
    return {**section, "required": required} if required else section


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _property(field: FieldInfo) -> dict[str, Any]:
    return {**_kind(field), "description": field.description}


def _kind(field: FieldInfo) -> dict[str, Any]:
    for mark in field.metadata:
        if mark in _PATTERNS:
            return {"type": "string", "pattern": _PATTERNS[mark]}
    if typing.get_args(Thousandths)[1] in field.metadata:
        return {"type": "number"}
    if field.annotation is RetryConfig:
        return _section(RetryConfig)
    if typing.get_origin(field.annotation) is typing.Literal:
        return {"enum": list(typing.get_args(field.annotation))}
    if typing.get_origin(field.annotation) is tuple:
        of_aliases = AliasConfig in typing.get_args(field.annotation)
        return {"type": "array", "items": {"$ref": "#/definitions/alias"} if of_aliases else {"type": "string"}}
    return {"type": _PLAIN[field.annotation]}


def rendered(schema: dict[str, Any]) -> str:
    """Return the text of the file."""
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(rendered(updated(json.loads(FILE.read_text()))))

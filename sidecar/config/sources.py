"""Reads the sources of a configuration: a TOML file, and environment variables that win over it.

::

    delay-router.toml                         environment
    [kafka] "bootstrap.servers" = "a:9092"    DELAY_ROUTER__KAFKA__BOOTSTRAP_SERVERS=a:9092
    [router] tick = "10ms"                    DELAY_ROUTER__ROUTER__TICK=20ms
    [kafka] "sasl.password_file" = "/run/p"   DELAY_ROUTER__KAFKA__SASL_PASSWORD_FILE=/run/p
    [[delay_topics]] ...                      DELAY_ROUTER__DELAY_TOPICS='[{"name": "orders.delay"}]'

This module only turns text into structure; the models of ``config`` know the keys and their meaning. Rejected:
pydantic-settings. It ignores a misspelled variable, cannot name the variable of a value, and reads the process
environment whenever a model is built.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from index.errors import ConfigError
from sidecar.config import secret_files

ENV_FILE: Final = "DELAY_ROUTER_CONFIG"
ENV_PREFIX: Final = "DELAY_ROUTER__"
BROKERS_VARIABLE: Final = f"{ENV_PREFIX}KAFKA__BOOTSTRAP_SERVERS"
DEFAULT_FILE: Final = Path("delay-router.toml")

_TOO_DEEP: Final = "tables or lists lie too deep in each other"

Raw = dict[str, object]
KeyPath = tuple[str | int, ...]


@dataclass(slots=True)
class Sources:
    """The merged raw configuration, and the variable for each key that the environment set."""

    raw: Raw
    file: Path | None
    variables: dict[KeyPath, str] = field(default_factory=dict)

    def of(self, place: KeyPath) -> str:
        """Return the variable or file that set the key at `place`, for messages."""
        for length in range(len(place), 0, -1):
            if variable := self.variables.get(place[:length]):
                return f"environment variable {variable}"
        return str(self.file) if self.file else "environment"


def read(path: Path | None, environ: Mapping[str, str]) -> Sources:
    """Read the file at `path` (else ``DELAY_ROUTER_CONFIG``, else ``./delay-router.toml``) and the environment over it.

    Only the default file may be absent, if the environment sets keys (a container without a file).
    """
    chosen = path or (Path(environ[ENV_FILE]) if environ.get(ENV_FILE) else None)
    variables = {name: value for name, value in environ.items() if name.upper().startswith(ENV_PREFIX)}
    if chosen is None and variables and not DEFAULT_FILE.exists():
        sources = Sources({}, None)
    else:
        file = chosen or DEFAULT_FILE
        sources = Sources(_read_toml(file, asked_for=chosen is not None), file)
    _flatten_kafka(sources.raw)
    for name, value in sorted(variables.items()):
        if not (_is_text(name) and _is_text(value)):
            raise ConfigError(f"environment variable {name!a}: not UTF-8")
        _overlay(sources, name, value)
    _read_secrets(sources)
    return sources


def _is_text(text: str) -> bool:
    """Say whether a text is valid; bytes of the environment that are not UTF-8 appear as lone surrogates."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _read_toml(file: Path, *, asked_for: bool) -> Raw:
    try:
        return tomllib.loads(file.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        remedy = "" if asked_for else f": name one with --config FILE or {ENV_FILE}, or set {ENV_PREFIX}* variables"
        raise ConfigError(f"{file}: no such configuration file{remedy}") from None
    except OSError as error:
        raise ConfigError(f"{file}: the configuration cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"{file}: not readable as TOML: not UTF-8 (at line {line})") from None
    except ValueError as error:
        # Usually a TOMLDecodeError; Python itself refuses a number of thousands of digits.
        raise ConfigError(f"{file}: not readable as TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{file}: not readable as TOML: {_TOO_DEEP}") from None


def _flatten_kafka(raw: Raw) -> None:
    """Turn nested tables into dotted keys: ``bootstrap.servers = ""`` without quotes means the same as with quotes."""
    kafka = raw.get("kafka")
    if isinstance(kafka, dict):
        raw["kafka"] = dict(_dotted(kafka))


def _dotted(table: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    # An explicit stack, because tables may be nested deeper than Python's limit of calls.
    left = list(table.items())[::-1]
    while left:
        key, value = left.pop()
        if isinstance(value, dict):
            left += [(f"{key}.{inner}", each) for inner, each in value.items()][::-1]
        else:
            yield key, value


def _overlay(sources: Sources, name: str, value: str) -> None:
    section, _, key = name[len(ENV_PREFIX) :].lower().partition("__")
    if section == "delay_topics" and not key:
        sources.raw[section] = _json_list(name, value)
        sources.variables[(section,)] = name
        return
    if not section or not key or section == "delay_topics":
        raise ConfigError(f"environment variable {name}: not a key: {_grammar(section)}")
    if section == "kafka":
        key = secret_files.kafka_key(key)
    if section not in sources.raw:
        sources.raw[section] = {}
        sources.variables[(section,)] = name
    table = sources.raw[section]
    if isinstance(table, dict):
        table[key] = value
        sources.variables[(section, key)] = name
        if section == "kafka" and (section, other := secret_files.counterpart(key)) not in sources.variables:
            # The environment also wins over the alternative key in the file.
            table.pop(other, None)


def _read_secrets(sources: Sources) -> None:
    """Replace the names of secret files by the content of the files."""
    table = sources.raw.get("kafka")
    if not isinstance(table, dict):
        return
    for key in [key for key in table if key.endswith(secret_files.SUFFIX)]:
        base, origin = secret_files.counterpart(key), sources.of(("kafka", key))
        if base in table:
            raise ConfigError(f'{origin}: kafka."{key}": "{base}" is given too; give one of them')
        try:
            table[base] = secret_files.read(key, table.pop(key))
        except ConfigError as error:
            raise ConfigError(f"{origin}: {error}") from None
        if variable := sources.variables.get(("kafka", key)):
            sources.variables[("kafka", base)] = variable


def _grammar(section: str) -> str:
    if section == "delay_topics":
        return f"""give all delay topics as JSON: {ENV_PREFIX}DELAY_TOPICS='[{{"name": "orders.delay"}}]'"""
    return f"write {ENV_PREFIX}<SECTION>__<KEY>, as in {ENV_PREFIX}ROUTER__TICK=20ms"


def _json_list(name: str, value: str) -> list[object]:
    try:
        parsed: object = json.loads(value)
    except ValueError as error:
        raise ConfigError(f"environment variable {name}: not readable as JSON: {error}") from None
    except RecursionError:
        raise ConfigError(f"environment variable {name}: not readable as JSON: {_TOO_DEEP}") from None
    if not isinstance(parsed, list):
        raise ConfigError(f"environment variable {name}: {_grammar('delay_topics')}")
    return parsed

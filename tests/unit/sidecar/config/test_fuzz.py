"""Any file and any environment give a valid configuration, or a ConfigError that can be printed."""

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from index.errors import ConfigError
from sidecar.config.delay_topic import AliasConfig, DelayTopicConfig
from sidecar.config.model import Config, RouterConfig, load
from sidecar.config.problems import keys_of
from sidecar.config.reference import effective
from sidecar.config.sources import ENV_PREFIX

MINIMAL: dict[str, Any] = {
    "kafka": {"bootstrap.servers": "localhost:9092"},
    "delay_topics": [{"name": "orders.delay", "default_target": "orders"}],
}
SECTIONS = [*keys_of(Config), "function-after", "Kafka", ""]
KEYS = [*keys_of(RouterConfig), *keys_of(DelayTopicConfig), *keys_of(AliasConfig), "listen", "bootstrap.servers"]

_words = st.sampled_from(
    ["", "0", "7d", "10ms", "-1s", "1e9", "99999999999999999999d", "64KiB", "1EiB", "orders", "__x", "..", "*", "a.*",
     "cesium", "inline", "127.0.0.1:8080", "[::1]:99999", "true", "localhost:9092", "x" * 300, "\x00", "\x1b[31m"]
)  # fmt: skip
_texts = _words | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_numbers = (
    st.integers(-3, 100_001)
    | st.sampled_from([2**31, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**300])
    | st.floats()
    | st.booleans()
)
_times = st.sampled_from([datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1), time(1, 2, 3)])
_scalars = _texts | _numbers | _times
_keys = st.sampled_from(KEYS) | _texts
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3), max_leaves=8
)
_tables = st.dictionaries(_keys, _values, max_size=4)
_anything = st.dictionaries(st.sampled_from(SECTIONS) | _texts, _values | _tables | st.lists(_tables, max_size=3))
# Mostly right values, so that the checks behind the first one are reached, too.
_nearly_right = st.builds(
    lambda section, key, value: {**MINIMAL, section: {**MINIMAL.get(section, {}), key: value}},
    st.sampled_from(["kafka", "router", "http"]),
    _keys,
    _values,
) | st.builds(
    lambda key, value: {**MINIMAL, "delay_topics": [{"name": "d", "default_target": "out", key: value}]}, _keys, _values
)
# An environment may hold bytes that are no text; they become lone surrogates.
_environ_texts = _words | st.text(max_size=8)
_environments = st.dictionaries(
    st.builds(
        lambda parts: ENV_PREFIX + "__".join(parts),
        st.lists(st.sampled_from([*SECTIONS, *KEYS]) | _environ_texts, min_size=1, max_size=3),
    ),
    _environ_texts | _values.map(lambda value: json.dumps(value, default=str)),
    max_size=4,
)


def _toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value).replace("\x7f", "\\u007f")
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{_toml(key)} = {_toml(inner)}' for key, inner in value.items())}}}"
        case datetime() | date() | time():
            return value.isoformat()
        case _:
            return str(value)


def _read(content: bytes, environ: Mapping[str, str] | None = None) -> Config | None:
    """Load such a file; None when it is refused with a message that can be written anywhere."""
    with TemporaryDirectory() as directory:
        file = Path(directory) / "router.toml"
        file.write_bytes(content)
        try:
            config = load(file, environ or {})
        except ConfigError as error:
            str(error).encode()
            return None
    for topic in config.delay_topics:
        assert config.rules_for(topic).topic == topic.name
    json.dumps(effective(config)).encode()
    return config


@given(structure=_anything | _nearly_right)
@settings(max_examples=600)
@example(structure={"function-after": 1})
@example(structure={"router": {"function-after": 1}})
@example(structure={**MINIMAL, "kafka": {"bootstrap.servers": "b", "function-x": []}})
@example(structure={**MINIMAL, "router": {"tick": 10**300}})
def test_any_structure(structure: dict[str, object]) -> None:
    _read("\n".join(f"{_toml(key)} = {_toml(value)}" for key, value in structure.items()).encode())


@given(environ=_environments)
@settings(max_examples=400)
@example(environ={f"{ENV_PREFIX}ROUTER__\udcff": "1"})
@example(environ={f"{ENV_PREFIX}\udcff__X": "1"})
@example(environ={f"{ENV_PREFIX}ROUTER__TICK": "\udcff"})
@example(environ={f"{ENV_PREFIX}KAFKA__SASL_PASSWORD": "\udcff"})
@example(environ={f"{ENV_PREFIX}DELAY_TOPICS": '[{"name": "\udcff"}]'})
@example(environ={f"{ENV_PREFIX}DELAY_TOPICS": '[{"\\udcff": 1}]'})
def test_any_environment(environ: dict[str, str]) -> None:
    _read("\n".join(f"{_toml(key)} = {_toml(value)}" for key, value in MINIMAL.items()).encode(), environ)


@given(content=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode(errors="surrogatepass")))
def test_any_bytes(content: bytes) -> None:
    _read(content)


@given(at=st.integers(0), cut=st.integers(0, 6), put=st.text('[]{}="\\.,#\n0a-', max_size=4))
@settings(max_examples=400)
def test_a_file_with_a_slip_in_it(at: int, cut: int, put: str) -> None:
    text = "\n".join(f"{_toml(key)} = {_toml(value)}" for key, value in MINIMAL.items())
    at %= len(text)
    _read((text[:at] + put + text[at + cut :]).encode())


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a = " + "{a = " * 100_000,
        "a = " + "[" * 300 + "]" * 300,
        "router.tick = " + "[" * 450 + "]" * 450,
        "kafka.x = " + "[" * 450 + "]" * 450,
        "a." * 5_000 + "a = 1",
        "kafka." + "a." * 5_000 + "a = 1",
        "a = " + "9" * 5_000,
        "[router]\nbatch_records = " + "9" * 5_000,
        "a = 2026-99-99",
        "a = 1e99999",
    ],
    ids=lambda text: text[:12] + str(len(text)),
)
def test_what_is_too_deep_or_too_long_is_refused(text: str) -> None:
    assert _read(text.encode()) is None


@pytest.mark.parametrize("value", ["[" * 100_000, '[{"a":' * 100_000, "[" + "9" * 5_000 + "]", "[1e99999]", "[NaN]"])
def test_json_that_is_too_deep_or_too_long_is_refused(value: str) -> None:
    environ = {f"{ENV_PREFIX}DELAY_TOPICS": value, f"{ENV_PREFIX}KAFKA__BOOTSTRAP_SERVERS": "b:1"}
    assert _read(b"", environ) is None

"""Configurations for tests: the smallest one, and files read as the router reads them."""

import json
from pathlib import Path

import pytest

from index.errors import ConfigError
from sidecar.config.model import Config, load

MINIMAL = """
[kafka]
"bootstrap.servers" = "localhost:9092"

[[delay_topics]]
name = "orders.delay"
default_target = "orders"
"""


def loaded(tmp_path: Path, text: str, **environ: str) -> Config:
    file = tmp_path / "router.toml"
    file.write_text(text, encoding="utf-8")
    return load(file, environ)


def refused(tmp_path: Path, text: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text, **environ)
    return str(caught.value)


_TOPIC = """
[kafka]
"bootstrap.servers" = "b:9093"
[router]
group_id = "{group}"
[[delay_topics]]
name = "orders.delay"
default_target = "orders"
allowed_targets = {allowed}
trim = {trim}
"""


def configured(folder: Path, *allowed: str, trim: bool = False, group: str = "delay-router", more: str = "") -> Path:
    file = folder / "router.toml"
    text = _TOPIC.format(allowed=json.dumps(allowed), trim=str(trim).lower(), group=group)
    file.write_text(text + more)
    return file

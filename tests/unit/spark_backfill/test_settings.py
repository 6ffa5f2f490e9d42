"""The jobs read the configuration as the router does: spark_backfill.settings against sidecar.config.model."""

import re
from pathlib import Path
from typing import Any

import pytest

from index.errors import ConfigError
from sidecar.config import model as config
from spark_backfill import settings
from tests.support.paths import ROOT

FULL = """
[kafka]
bootstrap.servers = "a:9092,b:9092"
"security.protocol" = "ssl"
socket.keepalive.enable = true
"message.max.bytes" = 2000000

[router]
group_id = "mine"
tick = "20ms"
policies_topic = "policies"

[http]
listen = "0.0.0.0:8080"

[[delay_topics]]
name = "orders.delay"
default_target = "orders"
allowed_targets = ["orders", "billing.*", "orders"]
max_delay = "36h"
aliases = ["cesium", {preset = "etf1"}, {name = "x-due", role = "at", unit = "s"}, {name = "x-to", role = "to"}]
placement = "pointer"
time_step = "1m"
segment_records = 700
segment_bytes = "64KiB"
delay = "90s"
spread = "30s"
seal_records = 5000

[[delay_topics]]
name = "mail.delay"
enabled = false
max_delay = "0"
allowed_targets = ["*"]
state_topic = "s"
snapshots_topic = "n"
rejected_topic = "r"
backfill_topic = "b"
receipts_topic = "c"

[[delay_topics]]
name = "bulk.delay"
enabled = false
when_disabled = "release"
default_target = "bulk"

[[delay_topics]]
name = "orders.retry"
default_target = "orders"
retry = {first = "500ms", factor = 1.5, max = "1h", jitter = 0.1, attempts = 8, dead_letter = "orders.dlq"}

[[delay_topics]]
name = "billing.retry"
default_target = "billing"
retry = {attempts = 3, dead_letter = "billing.dlq"}

[[delay_topics]]
name = "no.retry"
default_target = "orders"
retry = {attempts = 0}
"""


def examples() -> list[str]:
    """Return every whole configuration in the documents, and one with all keys."""
    found = [FULL]
    for document in ("README.md", "CONTRIBUTING.md"):
        blocks = re.findall(r"```toml\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)
        found += [block for block in blocks if "[[delay_topics]]" in block and "[kafka]" in block]
    return found


@pytest.mark.parametrize("text", examples())
@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"DELAY_ROUTER__KAFKA__BOOTSTRAP_SERVERS": "c:9092", "DELAY_ROUTER__ROUTER__GROUP_ID": "other"},
        {"DELAY_ROUTER__DELAY_TOPICS": '[{"name": "d", "default_target": "t", "max_delay": "500ms"}]'},
    ],
)
def test_rules_topics_and_limits_are_the_routers(tmp_path: Path, text: str, environ: dict[str, str]) -> None:
    file = tmp_path / "delay-router.toml"
    file.write_text(text)
    router, jobs = config.load(file, environ), settings.load(file, environ)
    assert jobs.kafka == router.kafka
    assert jobs.group_id == router.router.group_id
    assert jobs.policies_topic == router.router.policies_topic
    assert len(jobs.delay_topics) == len(router.delay_topics) > 0
    for theirs, ours in zip(router.delay_topics, jobs.delay_topics, strict=True):
        assert ours.rules == router.rules_for(theirs)
        assert ours.rules.to_json() == router.rules_for(theirs).to_json()
        names = (ours.name, ours.state, ours.snapshots, ours.rejected, ours.backfill)
        assert names == (theirs.name, theirs.state, theirs.snapshots, theirs.rejected, theirs.backfill)
        for limit in ("time_step_ms", "segment_entries", "segment_bytes", "placement"):
            assert getattr(ours.seal_rules, limit) == getattr(theirs.seal_rules, limit)


def test_there_are_examples_in_the_documents() -> None:
    assert len(examples()) > 1


def test_a_container_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"DELAY_ROUTER__KAFKA__BOOTSTRAP_SERVERS": "a:9092", "DELAY_ROUTER__DELAY_TOPICS": '[{"name": "d"}]'}
    found = settings.load(None, environ)
    assert found.kafka == {"bootstrap.servers": "a:9092"}
    assert found.delay_topic("d").name == "d"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[delay_topics]]", "bootstrap.servers.*required"),
        ('[kafka]\n"bootstrap.servers" = "a"\n[[delay_topics]]\n', "each with a name"),
        ('[kafka]\n"bootstrap.servers" = "a"\n[[delay_topics]]\nname = "d"\nmax_delay = "7 d"', "'d': max_delay"),
        ('[kafka]\n"bootstrap.servers" = "a"\n[[delay_topics]]\nname = "d"\nmax_delay = "7"', "'d': max_delay"),
        ('[kafka]\n"bootstrap.servers" = "a"\n[[delay_topics]]\nname = "d"\nplacement = "x"', "'d': placement"),
        ('[kafka]\n"bootstrap.servers" = "a"\n[[delay_topics]]\nname = "d d"', "'d d': topic"),
        ('[kafka]\n"bootstrap.servers" = "a"\n[router]\nmsk_region = "eu-west-1"', "jobs do not sign tokens"),
        ('kafka = "a"', "kafka: a table is needed"),
        ("[kafka", "not readable as TOML"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        settings.load(file, {})


def test_a_missing_file_and_an_unknown_topic(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: no such configuration file"):
        settings.load(tmp_path / "none.toml", {})
    file = tmp_path / "delay-router.toml"
    file.write_text(FULL)
    with pytest.raises(ConfigError, match=r"'orders' is not a configured.*orders\.delay, mail\.delay"):
        settings.load(file, {}).delay_topic("orders")


def test_the_file_that_the_environment_names(tmp_path: Path) -> None:
    file = tmp_path / "elsewhere.toml"
    file.write_text(FULL)
    environ: dict[str, Any] = {"DELAY_ROUTER_CONFIG": str(file)}
    assert settings.load(None, environ).source == str(file)


def test_a_secret_from_a_file_is_the_routers(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.write_text("p\u00e4ss\n")
    file = tmp_path / "delay-router.toml"
    file.write_text(f'[kafka]\n"bootstrap.servers" = "a:1"\n"ssl.key.password_file" = "{held}"\n')
    environ = {
        "DELAY_ROUTER__KAFKA__SASL_PASSWORD_FILE": str(held),
        "DELAY_ROUTER__KAFKA__SASL_OAUTHBEARER_ASSERTION_FILE": "/run/jwt",
    }
    kafka = settings.load(file, environ).kafka
    assert kafka == config.load(file, environ).kafka
    assert kafka["sasl.password"] == kafka["ssl.key.password"] == "p\u00e4ss"
    with pytest.raises(ConfigError, match=r'kafka\."sasl.password_file": /nowhere: the file cannot be read'):
        settings.load(file, {"DELAY_ROUTER__KAFKA__SASL_PASSWORD_FILE": "/nowhere"})

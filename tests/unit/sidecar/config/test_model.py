"""The configuration file and the environment: their meaning, and their error messages."""

import json
import os
from pathlib import Path

import pytest

from index.buckets.bucket_rules import SealRules
from index.errors import ConfigError
from index.protocol.headers import Alias, HeaderRole, Unit
from index.rules.rules import Reason, Rejection, Retry, Schedule
from sidecar.config.librdkafka_keys import DEBUG_CONTEXTS, HARMLESS, REFUSED
from sidecar.config.model import Config, load
from sidecar.config.problems import key_path
from sidecar.config.reference import effective, render_effective, render_reference
from sidecar.config.units import format_duration, format_size, parse_duration_ms, parse_size_bytes
from tests.support.configuration import MINIMAL, loaded, refused

_RETRY = MINIMAL + 'retry = {attempts = 3, dead_letter = "dead"'


def test_the_example_of_the_contract(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        """
[kafka]                       # handed to librdkafka as it is (security included)
"bootstrap.servers" = "localhost:9092"

[router]
group_id = "delay-router"
tick = "10ms"
instance_id = ""

[http]
listen = "127.0.0.1:8080"

[[delay_topics]]
name = "orders.delay"
default_target = "orders"
allowed_targets = ["orders", "billing.*"]
max_delay = "7d"
""",
    )
    assert config.kafka == {"bootstrap.servers": "localhost:9092"}
    assert config.router.tick_ms == 10
    assert (config.http.host, config.http.port) == ("127.0.0.1", 8080)
    (topic,) = config.delay_topics
    assert topic.max_delay_ms == 7 * 86_400_000
    assert (topic.state, topic.snapshots, topic.rejected, topic.backfill, topic.receipts) == (
        "orders.delay.delay-state",
        "orders.delay.delay-snapshots",
        "orders.delay.rejected",
        "orders.delay.delay-backfill",
        "orders.delay.receipts",
    )


def test_defaults(tmp_path: Path) -> None:
    router = loaded(tmp_path, MINIMAL).router
    assert (router.group_id, router.instance_id, router.log_level) == ("delay-router", "", "info")
    assert (router.tick_ms, router.session_timeout_ms, router.transaction_timeout_ms) == (10, 10_000, 60_000)
    assert (router.batch_records, router.payload_memory_bytes) == (50_000, 512 << 20)


def test_buckets_by_default_and_as_configured(tmp_path: Path) -> None:
    (topic,) = loaded(tmp_path, MINIMAL).delay_topics
    assert (topic.trim, topic.max_buckets) == (False, 24)
    assert topic.seal_rules == SealRules(100_000, 500_000, 60_000, 300_000, 2_000, 512 << 10, "auto", 30_000)
    (topic,) = loaded(
        tmp_path,
        MINIMAL
        + """
placement = "pointer"
seal_records = 10
seal_age = "2s"
time_step = "30s"
segment_records = 5
segment_bytes = "64KiB"
max_buckets = 3
trim = true
""",
    ).delay_topics
    assert (topic.trim, topic.max_buckets) == (True, 3)
    rules = topic.seal_rules
    assert (rules.max_entries, rules.max_age_ms, rules.time_step_ms) == (10, 2_000, 30_000)
    assert (rules.segment_entries, rules.segment_bytes, rules.placement) == (5, 64 << 10, "pointer")


def test_retries_of_the_contract(tmp_path: Path) -> None:
    written = """
retry = { first = "1s", factor = 2, max = "1h", jitter = 0.1, attempts = 8, dead_letter = "orders.dlq" }
"""
    config = loaded(tmp_path, MINIMAL + written)
    (topic,) = config.delay_topics
    retry = Retry(1_000, 2_000, 3_600_000, 100, 8, "orders.dlq")
    assert topic.retry.rule == config.rules_for(topic).retry == retry
    assert [*topic.named_targets()] == ["orders", "orders.dlq"]
    again = loaded(tmp_path, render_effective(config))
    assert again.delay_topics[0].retry == topic.retry
    (plain,) = loaded(tmp_path, MINIMAL + 'retry = {attempts = 0, dead_letter = "unused"}').delay_topics
    assert plain.retry.rule is None
    assert [*plain.named_targets()] == ["orders"]
    given = [{"name": "a", "retry": {"attempts": 2, "jitter": 0.25, "dead_letter": "b"}}]
    (topic,) = loaded(tmp_path, MINIMAL, DELAY_ROUTER__DELAY_TOPICS=json.dumps(given)).delay_topics
    assert topic.retry.rule == Retry(1_000, 2_000, 3_600_000, 250, 2, "b")


def test_environment_wins_over_the_file(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        MINIMAL + '[router]\ntick = "10ms"\n',
        DELAY_ROUTER__ROUTER__TICK="20ms",
        DELAY_ROUTER__ROUTER__BATCH_RECORDS="7",
        DELAY_ROUTER__HTTP__LISTEN="0.0.0.0:9000",
        DELAY_ROUTER__KAFKA__BOOTSTRAP_SERVERS="b:1",
        DELAY_ROUTER__KAFKA__SASL_OAUTHBEARER_CLIENT_ID="me",
        DELAY_ROUTER_CONFIG="ignored-when-a-file-is-named.toml",
        UNRELATED="x",
    )
    assert (config.router.tick_ms, config.router.batch_records) == (20, 7)
    assert config.http.listen == "0.0.0.0:9000"
    assert config.kafka == {"bootstrap.servers": "b:1", "sasl.oauthbearer.client.id": "me"}


def test_delay_topics_by_environment(tmp_path: Path) -> None:
    topics = [{"name": "a", "max_delay": "1h", "aliases": ["etf1"]}, {"name": "b"}]
    config = loaded(tmp_path, MINIMAL, DELAY_ROUTER__DELAY_TOPICS=json.dumps(topics))
    assert [(topic.name, topic.max_delay_ms) for topic in config.delay_topics] == [
        ("a", 3_600_000),
        ("b", 7 * 86_400_000),
    ]


def test_no_file_is_needed_when_the_environment_says_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = load(None, {"DELAY_ROUTER__KAFKA__BOOTSTRAP_SERVERS": "a:1"})
    assert config.kafka == {"bootstrap.servers": "a:1"}
    with pytest.raises(ConfigError, match="no delay topic"):
        config.require_delay_topics()


def test_file_named_by_the_environment_or_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("delay-router.toml").write_text(MINIMAL)
    Path("other.toml").write_text(MINIMAL.replace("orders.delay", "other.delay"))
    assert load(None, {}).delay_topics[0].name == "orders.delay"
    assert load(None, {"DELAY_ROUTER_CONFIG": "other.toml"}).delay_topics[0].name == "other.delay"


def test_building_a_model_does_not_read_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAY_ROUTER__ROUTER__TICK", "20ms")
    assert Config.model_validate({"kafka": {"bootstrap.servers": "a:1"}}).router.tick_ms == 10


def test_kafka_values_become_text_and_dotted_keys_need_no_quotes(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        '[kafka]\nbootstrap.servers = "a:1"\nsocket.keepalive.enable = true\nsocket.timeout.ms = 5000\n',
    )
    assert config.kafka == {
        "bootstrap.servers": "a:1",
        "socket.keepalive.enable": "true",
        "socket.timeout.ms": "5000",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("surprise = 1\n" + MINIMAL, "surprise: unknown key"),
        (MINIMAL + "[rooter]\n", "rooter: unknown key; did you mean 'router'?"),
        (MINIMAL + '[router]\ntik = "1ms"\n', "router.tik: unknown key; did you mean 'tick'?"),
        (MINIMAL + "[router]\ntick_ms = 10\n", "router.tick_ms: unknown key; did you mean 'tick'?"),
        (MINIMAL + 'max_dealy = "1d"\n', "delay_topics[0].max_dealy: unknown key; did you mean 'max_delay'?"),
        (MINIMAL + 'aliases = [{nam = "x"}]\n', "delay_topics[0].aliases[0].nam: unknown key; did you mean 'name'?"),
        (MINIMAL + '[http]\nport = "1"\n', "http.port: unknown key"),
    ],
)
def test_unknown_key_is_named_with_its_file(tmp_path: Path, text: str, expected: str) -> None:
    assert f"{tmp_path / 'router.toml'}: {expected}" in refused(tmp_path, text).splitlines()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[kafka]\n", 'kafka."bootstrap.servers": required'),
        ('[kafka]\n"bootstrap.server" = "a:1"\n', 'did you mean it by "bootstrap.server"?'),
        ('[kafka]\n"bootstrap.servers" = ""\n', 'kafka."bootstrap.servers": required'),
        ('[kafka]\n"bootstrap.servers" = ["a:1"]\n', 'kafka."bootstrap.servers": Input should be a valid string'),
        ("kafka = 1\n", "kafka: Input should be a valid dictionary"),
        (MINIMAL + "[router]\ntick = 10\n", "router.tick: a duration is written like 500ms"),
        (MINIMAL + '[router]\ntick = "1y"\n', "unknown unit 'y'"),
        (MINIMAL + '[router]\ntick = "1h"\n', "router.tick: Input should be less than or equal to 10000"),
        (MINIMAL + '[router]\nsession_timeout = "0"\n', "router.session_timeout: Input should be greater"),
        (MINIMAL + '[router]\ntransaction_timeout = "1h"\n', "router.transaction_timeout: Input should be less"),
        (MINIMAL + "[router]\nbatch_records = true\n", "router.batch_records: a whole number is needed, not true"),
        (MINIMAL + "[router]\nbatch_records = 0\n", "router.batch_records: Input should be greater"),
        (MINIMAL + '[router]\nlog_level = "loud"\n', "router.log_level: Input should be 'debug'"),
        (MINIMAL + '[router]\ngroup_id = ""\n', "router.group_id: String should have at least 1 character"),
        (MINIMAL + '[router]\ninstance_id = "a\\nb"\n', "router.instance_id: 'a\\nb' has"),
        (MINIMAL + '[http]\nlisten = "8080"\n', "http.listen: an address is written HOST:PORT"),
        (MINIMAL + '[http]\nlisten = "localhost:99999"\n', "http.listen: an address is written HOST:PORT"),
        (MINIMAL + 'timestamp = "now"\n', "delay_topics[0].timestamp: Input should be 'release', 'due' or 'source'"),
        (
            MINIMAL + 'placement = "memory"\n',
            "delay_topics[0].placement: Input should be 'inline', 'pointer' or 'auto'",
        ),
        (MINIMAL + "seal_records = 0\n", "delay_topics[0].seal_records: Input should be greater"),
        (MINIMAL + 'seal_age = "50ms"\n', "delay_topics[0].seal_age: Input should be greater"),
        (MINIMAL + 'time_step = "10"\n', "delay_topics[0].time_step: a duration is written like"),
        (MINIMAL + "segment_records = true\n", "delay_topics[0].segment_records: a whole number is needed, not true"),
        (MINIMAL + 'segment_bytes = "1MiB"\n', "delay_topics[0].segment_bytes: Input should be less"),
        (MINIMAL + "max_buckets = 1\n", "delay_topics[0].max_buckets: Input should be greater"),
        (MINIMAL + 'trim = "perhaps"\n', "delay_topics[0].trim: Input should be a valid boolean"),
        (MINIMAL + 'max_delay = "1m"\ndelay = "5m"\n', "delay = 5m is over max_delay = 1m"),
        (MINIMAL + "retry = {}\n", "delay_topics[0].retry.attempts: required"),
        (MINIMAL + "retry = {attempts = 3}\n", "delay_topics[0].retry: dead_letter: required, since records without"),
        (_RETRY + ', first = "0"}\n', "retry.first: Input should be greater than or equal to 1"),
        (_RETRY + ', first = "2h"}\n', "retry.max = 1h is below retry.first = 2h"),
        (_RETRY + ', max = "8d"}\n', "retry.max = 8d is over max_delay = 7d"),
        (_RETRY + ", factor = 0.5}\n", "retry.factor: expected a number from 1 to 100"),
        (_RETRY + ", factor = inf}\n", "retry.factor: a number is needed, as in 2 or 0.25"),
        (_RETRY + ", jitter = true}\n", "retry.jitter: a number is needed"),
        (_RETRY + ", jitter = 1.5}\n", "retry.jitter: expected a number from 0 to 1"),
        (_RETRY + ", tries = 3}\n", "retry.tries: unknown key"),
        (_RETRY.replace("3", "1001") + "}\n", "retry.attempts: Input should be less than or equal to 1000"),
        (_RETRY + '}\ndelay = "5m"\n', "retry and delay exclude each other"),
        (_RETRY + "}\nrecurring = true\n", "retry and recurring exclude each other"),
        (
            _RETRY.replace('"dead"', '"orders.delay"') + "}\n",
            "retry: 'orders.delay' is the router's own and never a target",
        ),
        (_RETRY.replace('"dead"', '"x.rejected"') + "}\n", "retry: 'x.rejected': topics whose names end in"),
        (_RETRY.replace('"dead"', '"orders"') + "}\n", "dead_letter 'orders' is the default_target"),
        (
            _RETRY.replace('"dead"', '"b"') + '}\n[[delay_topics]]\nname = "b"\n',
            "delay_topics[0].retry: 'b' is the router's own and never a target",
        ),
        (MINIMAL + 'max_delay = "-1d"\n', "delay_topics[0].max_delay: a duration is written like"),
        (MINIMAL + 'allowed_targets = ["a b"]\n', "delay_topics[0].allowed_targets[0]: 'a b': "),
        (MINIMAL + 'allowed_targets = ["__consumer*"]\n', "are never a target"),
        (MINIMAL + 'allowed_targets = ["orders.delay"]\n', "'orders.delay' is the router's own and never a target"),
        (MINIMAL + 'aliases = ["rocketmq"]\n', "delay_topics[0].aliases[0].preset: Input should be"),
        (MINIMAL + 'aliases = [{name = "x"}]\n', "an alias needs name and role"),
        (MINIMAL + 'aliases = [{name = "x", role = "at", unit = "iso8601"}]\n', "role 'at' takes unit"),
        (MINIMAL + 'aliases = [{name = "delay-due", role = "at"}]\n', "written by the router itself"),
        (
            MINIMAL + 'state_topic = "orders.delay"\n',
            "'orders.delay' is already the delay topic (delay_topics[0].name)",
        ),
        (MINIMAL + 'rejected_topic = "__dead"\n', "names starting with '__' belong to Kafka"),
        (MINIMAL + '[[delay_topics]]\nname = "orders.delay"\n', "delay_topics[1].name: 'orders.delay' is already"),
        (
            MINIMAL + '[[delay_topics]]\nname = "b"\nstate_topic = "orders.delay.delay-state"\n',
            "is already the state topic",
        ),
        (MINIMAL + '[[delay_topics]]\nname = "b"\ndefault_target = "orders.delay"\n', "delay_topics[1].default_target"),
        ('[kafka]\nbootstrap.servers = "a:1"\n[[delay_topics]]\n', "delay_topics[0].name: required"),
        (MINIMAL.replace("orders.delay", "d" * 240), "delay_topics[0].state_topic: 'd"),
        (MINIMAL.replace("orders.delay", "a/b"), "'a/b' is not a legal topic name"),
    ],
)
def test_values_that_cannot_be_accepted(tmp_path: Path, text: str, expected: str) -> None:
    message = refused(tmp_path, text)
    assert expected in message
    assert all(line.startswith(str(tmp_path / "router.toml")) for line in message.splitlines())


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    text = MINIMAL + '[router]\ntik = "1ms"\nbatch_records = "many"\n[http]\nlisten = ""\n'
    assert len(refused(tmp_path, text).splitlines()) == 3


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_keys_that_guarantees_depend_on_are_refused_with_a_reason(tmp_path: Path, key: str) -> None:
    message = refused(tmp_path, f'[kafka]\n"bootstrap.servers" = "a:1"\n"{key}" = "x"\n')
    assert message == f"{tmp_path / 'router.toml'}: {key_path(('kafka', key))}: not allowed: {REFUSED[key]}"


def test_debug_contexts_that_could_show_secrets_are_refused(tmp_path: Path) -> None:
    text = '[kafka]\n"bootstrap.servers" = "a:1"\n"debug" = "{}"\n'
    for context in ("security", "protocol", "all", "broker,security", "conf"):
        assert "could show credentials" in refused(tmp_path, text.format(context))
    assert loaded(tmp_path, text.format(",".join(sorted(DEBUG_CONTEXTS)))).kafka["debug"]


def test_problem_in_a_variable_names_the_variable(tmp_path: Path) -> None:
    message = refused(tmp_path, MINIMAL, DELAY_ROUTER__ROUTER__TIK="1ms", DELAY_ROUTER__HTTP__LISTEN="x")
    assert sorted(message.splitlines()) == [
        (
            "environment variable DELAY_ROUTER__HTTP__LISTEN: http.listen: "
            "an address is written HOST:PORT, as in 127.0.0.1:8080 or [::1]:8080, not 'x'"
        ),
        "environment variable DELAY_ROUTER__ROUTER__TIK: router.tik: unknown key; did you mean 'tick'?",
    ]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DELAY_ROUTER__TICK", "1ms"),
        ("DELAY_ROUTER__", "1"),
        ("DELAY_ROUTER__DELAY_TOPICS", "orders.delay"),
        ("DELAY_ROUTER__DELAY_TOPICS", '{"name": "a"}'),
        ("DELAY_ROUTER__DELAY_TOPICS__NAME", "a"),
        ("DELAY_ROUTER__ROOTER__TICK", "1ms"),
        ("DELAY_ROUTER__KAFKA__GROUP_ID", "x"),
        ("delay_router__router__tik", "1ms"),
    ],
)
def test_variable_under_the_prefix_that_means_nothing(tmp_path: Path, variable: str, value: str) -> None:
    assert f"environment variable {variable}: " in refused(tmp_path, MINIMAL, **{variable: value})


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.toml"
    with pytest.raises(ConfigError, match=rf"{missing}: no such configuration file"):
        load(missing, {})
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, {})
    assert "router.toml: not readable as TOML: " in refused(tmp_path, "[kafka]\n\nx =\n")
    assert "(at line 3, column 4)" in refused(tmp_path, "[kafka]\n\nx =\n")
    broken = tmp_path / "latin1.toml"
    broken.write_bytes(b"# one\n# two \xe9\n")
    with pytest.raises(ConfigError, match=r"latin1.toml: not readable as TOML: not UTF-8 \(at line 2\)"):
        load(broken, {})


def test_default_file_that_is_missing_says_how_to_name_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"delay-router.toml: no such configuration file: name one with --config"):
        load(None, {})


def test_rejected_topic_may_be_shared(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        MINIMAL + 'rejected_topic = "dead"\n[[delay_topics]]\nname = "b.delay"\nrejected_topic = "dead"\n',
    )
    assert [topic.rejected for topic in config.delay_topics] == ["dead", "dead"]


def test_rules_know_aliases_limit_and_every_topic_of_the_router(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        MINIMAL
        + """
max_delay = "1h"
allowed_targets = ["*"]
aliases = ["etf1", {name = "x-due", role = "at", unit = "s"}]
[[delay_topics]]
name = "b.delay"
""",
    )
    rules = config.rules_for(config.delay_topics[0])
    assert Alias("x-due", HeaderRole.AT, Unit.S) in rules.aliases
    assert Alias("scheduler-epoch", HeaderRole.AT, Unit.S) in rules.aliases
    now_ms = 1_700_000_000_000
    accepted = rules.decide([("x-due", b"1700000060")], now_ms)
    assert isinstance(accepted, Schedule)
    assert (accepted.due_ms, accepted.targets) == (1_700_000_060_000, ("orders",))
    too_far = rules.decide([("deliver-after", b"3600001")], now_ms)
    assert isinstance(too_far, Rejection)
    assert too_far.reason is Reason.MAX_DELAY_EXCEEDED
    for suffix in ("", ".delay-state", ".delay-snapshots", ".rejected", ".delay-backfill", ".receipts"):
        assert not rules.allowed(f"b.delay{suffix}")
        assert not rules.allowed(f"orders.delay{suffix}")
    assert rules.allowed("anything-else")


SECRETS = {
    "sasl.password": "canary-1",
    "sasl.username": "canary-2",
    "ssl.key.password": "canary-3",
    "ssl.key.pem": "canary-4",
    "sasl.oauthbearer.client.secret": "canary-5",
    "sasl.oauthbearer.config": "canary-6",
    "ssl.keystore.password": "canary-7",
    "a.key.nobody.has.heard.of": "canary-8",
}


def test_secrets_are_masked_by_an_allow_list(tmp_path: Path) -> None:
    lines = "".join(f'"{key}" = "{value}"\n' for key, value in SECRETS.items())
    config = loaded(tmp_path, '[kafka]\n"bootstrap.servers" = "a:1"\n' + lines)
    printed = render_effective(config) + json.dumps(effective(config))
    assert "canary" not in printed
    assert '"sasl.password" = "****"' in printed
    assert '"bootstrap.servers" = "a:1"' in printed
    assert not {key for key in HARMLESS if "password" in key or "secret" in key or key.endswith(".pem")}


@pytest.mark.parametrize("key", [key for key in SECRETS if key.endswith(("password", "username", "secret", "pem"))])
def test_a_secret_may_come_from_a_file(tmp_path: Path, key: str) -> None:
    held = tmp_path / "held"
    held.write_text("canary-\u00e4\nwith lines\n")
    config = loaded(tmp_path, f'[kafka]\n"bootstrap.servers" = "a:1"\n"{key}_file" = "{held}"\n')
    assert config.kafka == {"bootstrap.servers": "a:1", key: "canary-\u00e4\nwith lines"}
    assert "canary" not in render_effective(config) + json.dumps(effective(config))
    variable = f"DELAY_ROUTER__KAFKA__{key.replace('.', '_').upper()}_FILE"
    given = f'[kafka]\n"bootstrap.servers" = "a:1"\n"{key}" = "of the file"\n'
    assert loaded(tmp_path, given, **{variable: str(held)}).kafka == config.kafka


def test_the_environment_wins_over_a_secret_file_too(tmp_path: Path) -> None:
    text = '[kafka]\n"bootstrap.servers" = "a:1"\n"sasl.password_file" = "/nowhere"\n'
    assert loaded(tmp_path, text, DELAY_ROUTER__KAFKA__SASL_PASSWORD="p").kafka["sasl.password"] == "p"


def test_files_that_librdkafka_reads_itself_are_left_to_it(tmp_path: Path) -> None:
    text = '[kafka]\n"bootstrap.servers" = "a:1"\n'
    config = loaded(tmp_path, text, DELAY_ROUTER__KAFKA__SASL_OAUTHBEARER_ASSERTION_FILE="/run/jwt")
    assert config.kafka["sasl.oauthbearer.assertion.file"] == "/run/jwt"


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (None, "No such file or directory"),
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"canary\xff", "not UTF-8"),
        (b"canary\0", "holds a NUL byte"),
        (b"canary" * 20_000, "more than 65536 bytes"),
    ],
)
def test_a_secret_file_that_cannot_be_used_is_named_and_not_shown(
    tmp_path: Path, held: bytes | None, said: str
) -> None:
    file = tmp_path / "held"
    if held is not None:
        file.write_bytes(held)
    text = '[kafka]\n"bootstrap.servers" = "a:1"\n'
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, text, DELAY_ROUTER__KAFKA__SASL_PASSWORD_FILE=str(file))
    told = str(raised.value)
    assert told.startswith("environment variable DELAY_ROUTER__KAFKA__SASL_PASSWORD_FILE: ")
    assert f'kafka."sasl.password_file": {file}: ' in told
    assert said in told
    assert "canary" not in told


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('"sasl.password_file" = "/p"\n"sasl.password" = "canary"', '"sasl.password" is given too; give one of them'),
        ('"client.id_file" = "/p"', '"client.id" is no secret: give its value itself'),
        ('"sasl.password_file" = 7', "the name of a file is expected"),
        ('"sasl.password_file" = ""', "the name of a file is expected"),
    ],
)
def test_a_secret_file_that_cannot_be_meant(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, f'[kafka]\n"bootstrap.servers" = "a:1"\n{line}\n')
    assert said in str(raised.value)
    assert "canary" not in str(raised.value)


def test_what_is_printed_can_be_read_again(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        MINIMAL
        + 'allowed_targets = ["a*"]\naliases = ["cesium", {name = "x", role = "after", unit = "iso8601"}]\n'
        + "trim = true\n"
        + '[router]\ntick = "1500ms"\npayload_memory = "1000B"\ninstance_id = "ä\\"\\\\"\n',
    )
    again = loaded(tmp_path, render_effective(config))
    assert effective(again) == effective(config)
    assert again.router == config.router


def test_reference_tells_every_key_with_type_default_and_meaning() -> None:
    reference = render_reference()
    for line in (
        '| `tick` | duration | `"10ms"` | Most time',
        '| `payload_memory` | size | `"512MiB"` | Most payload',
        "| `batch_records` | number | `50000` | Most records",
        "| `name` | text | required | Name of the delay topic",
        '| `listen` | text | `"127.0.0.1:8080"` | Address',
        '| `max_delay` | duration | `"7d"` | Longest',
        "| `timestamp` | `release`, `due`, `source` |",
        '| `placement` | `inline`, `pointer`, `auto` | `"auto"` | Where snapshots',
        '| `segment_bytes` | size | `"512KiB"` | Most payload',
        '| `seal_age` | duration | `"1m"` | A bucket',
        "| `trim` | true or false | `false` | Remove",
        "| `group.id` | use router.group_id |",
    ):
        assert line in reference, line
    rows = [line for line in reference.splitlines() if line.startswith("| `")]
    assert all(line.count(" | ") >= 1 and not line.endswith("|  |") for line in rows), "a key without a meaning"


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("0", 0), ("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("36h", 129_600_000), ("7d", 604_800_000)],
)
def test_durations(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms
    assert parse_duration_ms(format_duration(duration_ms)) == duration_ms


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.5s", " 1s", "1 s", "-1s", "1S", "1y", "1mo", "\u0661s", "9" * 16 + "s", "99999d", 5, True],
)
def test_durations_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"a duration is written like|is more than 36500d"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("100B", 100), ("64KiB", 65_536), ("512MiB", 512 << 20), ("2GiB", 2 << 30)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size_bytes(text) == size
    assert parse_size_bytes(format_size(size)) == size


def test_environment_of_the_process_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DELAY_ROUTER")]:
        monkeypatch.delenv(name)
    file = tmp_path / "router.toml"
    file.write_text(MINIMAL)
    monkeypatch.setenv("DELAY_ROUTER__ROUTER__TICK", "30ms")
    assert load(file).router.tick_ms == 30

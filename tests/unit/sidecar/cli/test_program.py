"""The command line without a broker: usage, exit codes, and errors that name key and file."""

import json
import logging
import os
import re
import socket
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
import structlog
from click.testing import CliRunner, Result

from sidecar import __version__, app
from sidecar.cli import program
from sidecar.cli.program import LATER, SECTIONS, Later, cli
from sidecar.commit import built_from
from sidecar.logs import events
from sidecar.operations.asking.router_answers import topics_of

MINIMAL = """
[kafka]
"bootstrap.servers" = "{servers}"
[[delay_topics]]
name = "orders.delay"
default_target = "orders"
allowed_targets = ["orders", "billing.*"]
"""


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    """Write a configuration whose broker is a port without a listener."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    file = tmp_path / "router.toml"
    file.write_text(MINIMAL.format(servers=f"127.0.0.1:{port}"))
    return file


def run(*arguments: object, **environ: str) -> Result:
    return CliRunner(env=environ).invoke(cli, [str(argument) for argument in arguments])


def test_module_and_console_script_are_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sidecar", "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == f"delay-router, version {__version__}, commit {built_from()}\n"


def test_all_commands_of_the_contract() -> None:
    assert set(cli.commands) >= {"run", "init", "check", "send", "rejected", "demo", "status", "config"}


@pytest.mark.parametrize("command", LATER, ids=lambda command: command.name)
def test_a_command_that_is_loaded_later_is_the_one_of_that_name(command: Later) -> None:
    assert command.load().name == command.name


def test_no_summary_in_the_list_of_commands_is_cut() -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(cli, ["--help"]).output
    assert "Show the partitions of the group of routers." in shown
    assert "..." not in shown.partition("Try it:")[2]


def test_every_command_is_in_one_section_of_the_help() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(cli.commands)


def test_jobs_are_started_by_the_same_python(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, call: started.append(call))
    monkeypatch.setattr(program, "find_spec", lambda _: object())
    assert run("spark", "index", "--topic", "d", "--help").exit_code == 0
    assert started == [[sys.executable, "-m", "spark_backfill", "index", "--topic", "d", "--help"]]
    monkeypatch.setattr(program, "find_spec", lambda _: None)
    done = run("spark", "audit")
    assert (done.exit_code, "In a clone: uv tool install --force '.[spark]'" in done.stderr) == (2, True)
    assert "kafka-delay-router[" not in done.stderr, "the name is on no index"


def loaded_by(arguments: list[str], environ: dict[str, str]) -> set[str]:
    """Return the top-level modules and packages that a call has loaded at its end."""
    code = (
        "import os, sys; from sidecar.cli import main; end = os._exit;"
        "loaded = lambda: print('loaded:', *{name.partition('.')[0] for name in sys.modules}, flush=True);"
        "os._exit = lambda code: (loaded(), end(code));"
        f"sys.argv[1:] = {arguments!r}; main()"
    )
    environ = {**os.environ, **environ}
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=60, env=environ)
    loaded = set(done.stdout.rpartition("loaded:")[2].split())
    assert "click" in loaded, done.stderr
    return loaded


def test_an_answer_to_a_client_at_the_end_changes_no_exit_code() -> None:
    """A client lives in a thread, and C code still runs when the answer of its request comes, which is a timeout."""
    code = (
        "import ctypes, sys, threading, time; from sidecar.cli import main;"
        "from confluent_kafka.admin import AdminClient;"
        "libc = ctypes.CDLL(None); libc.__cxa_atexit(libc.usleep, ctypes.c_void_p(3_000_000), None);"
        "admin = AdminClient({'bootstrap.servers': '127.0.0.1:1'}); admin.describe_cluster(request_timeout=1);"
        "keep = lambda: (time.sleep(100), admin); threading.Thread(target=keep, daemon=True).start();"
        "sys.argv[1:] = ['--version']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.partition(",")[0]) == (0, "delay-router"), done.stderr


def test_output_that_a_full_disk_does_not_take_is_a_failure() -> None:
    with Path("/dev/full").open("w") as full:
        call = [sys.executable, "-m", "sidecar", "completion", "bash"]
        done = subprocess.run(call, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        (["--version"], {}),
        (["--help"], {}),
        (["no-such-command"], {}),
        (["completion", "bash"], {}),
        (["status", "--help"], {}),
        ([], {"_DELAY_ROUTER_COMPLETE": "bash_complete", "COMP_WORDS": "delay-router st", "COMP_CWORD": "1"}),
    ],
)
def test_what_asks_nothing_loads_nothing_that_takes_long(arguments: list[str], environ: dict[str, str]) -> None:
    heavy = {"asyncio", "confluent_kafka", "fastapi", "prometheus_client", "pydantic", "rich", "snapshots", "structlog"}
    assert loaded_by(arguments, environ) & heavy == set()


def test_the_configuration_is_printed_without_logs_and_tables() -> None:
    topics = '[{"name": "orders.delay", "default_target": "orders"}]'
    environ = {"DELAY_ROUTER__KAFKA__BOOTSTRAP_SERVERS": "b:1", "DELAY_ROUTER__DELAY_TOPICS": topics}
    loaded = loaded_by(["config"], environ)
    assert "pydantic" in loaded, "it was not read"
    assert loaded & {"asyncio", "confluent_kafka", "prometheus_client", "rich", "structlog"} == set()


@pytest.mark.parametrize("command", ["send", "pause", "policy"])
def test_the_help_of_a_command_loads_no_kafka_client(command: str) -> None:
    assert "confluent_kafka" not in loaded_by([command, "--help"], {})


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["config", "--no-such-option"],
        ["init", "--yes"],
        ["init", "--partitions", "0"],
        ["send", "orders.delay"],
        ["send", "orders.delay", "--value", "x", "--null"],
        ["send", "orders.delay", "--value", "x", "--header", "no-equals"],
        ["send", "orders.delay", "--value", "x", "--after", "soon"],
        ["status", "--url", "ftp://x"],
    ],
)
def test_wrong_usage_is_exit_code_2(config_file: Path, arguments: list[str]) -> None:
    result = run(*arguments, DELAY_ROUTER_CONFIG=str(config_file))
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "command", [["run"], ["init"], ["check"], ["send", "t", "--value", "x"], ["status"], ["config"]]
)
def test_wrong_configuration_is_exit_code_2_and_names_key_and_file(config_file: Path, command: list[str]) -> None:
    config_file.write_text(config_file.read_text() + "max_dealy = 1\n")
    result = run(*command, "--config", config_file)
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: {config_file}: delay_topics[0].max_dealy: unknown key; did you mean 'max_delay'?\n"
    )


@pytest.mark.parametrize("command", ["run", "init", "check"])
def test_key_that_librdkafka_does_not_know_is_exit_code_2(config_file: Path, command: str) -> None:
    config_file.write_text(config_file.read_text().replace("[kafka]", '[kafka]\n"socket.timeout" = 1'))
    result = run(command, "-c", config_file)
    assert result.exit_code == 2
    assert '"socket.timeout"; did you mean "socket.timeout.ms"?' in result.stderr


@pytest.mark.parametrize("command", ["run", "init"])
def test_no_delay_topic_is_exit_code_2(tmp_path: Path, command: str) -> None:
    file = tmp_path / "router.toml"
    file.write_text('[kafka]\n"bootstrap.servers" = "localhost:1"\n')
    result = run(command, "-c", file)
    assert result.exit_code == 2
    assert "no delay topic is configured" in result.stderr


def test_run_hands_over_configuration_and_exit_code(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def fake(config: object) -> int:
        seen.append(repr(config))
        return 7

    monkeypatch.setattr(app, "run", fake)
    assert run("run", "-c", config_file).exit_code == 7
    assert "orders.delay" in seen[0]


def test_config_prints_toml_or_json_with_secrets_masked(config_file: Path) -> None:
    secret = {"DELAY_ROUTER__KAFKA__SASL_PASSWORD": "canary"}
    text = run("config", "-c", config_file, **secret)
    assert (text.exit_code, "canary" in text.output) == (0, False)
    assert 'state_topic = "orders.delay.delay-state"' in text.output
    shown = json.loads(run("config", "-c", config_file, "--json", **secret).output)
    assert shown["kafka"]["sasl.password"] == "****"
    assert shown["router"]["tick"] == "10ms"


def test_reference_needs_no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("config", "--reference")
    assert result.exit_code == 0
    assert "| `tick` | duration |" in result.output


def test_send_refuses_before_sending_what_the_router_would_reject(config_file: Path) -> None:
    for arguments, reason in (
        (["--after", "8d"], "MAX_DELAY_EXCEEDED"),
        (["--to", "elsewhere"], "TARGET_NOT_ALLOWED"),
        (["--at", "tomorrow"], "INVALID_SCHEDULE"),
        (["--at", "1700000000"], "UNIT_SUSPECTED"),
        (["--header", "deliver-at=1", "--at", "1"], "AMBIGUOUS_HEADER"),
        (["--to", "orders", "--to", "orders"], "AMBIGUOUS_HEADER"),
    ):
        result = run("send", "orders.delay", "-c", config_file, "--value", "x", *arguments)
        assert result.exit_code == 1, arguments
        assert f"will be rejected: {reason}: " in result.stderr


def test_send_judges_headers_even_for_a_topic_it_does_not_know(config_file: Path) -> None:
    result = run("send", "unknown.delay", "-c", config_file, "--value", "x", "--at", "2030-01-01T00:00:00")
    assert result.exit_code == 1
    assert "INVALID_SCHEDULE" in result.stderr


def test_status_without_a_router_is_one_clear_line(config_file: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    result = run("status", "-c", config_file, "--url", url)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {url} does not answer (")
    assert result.stderr.count("\n") == 1


def closed_port() -> int:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return int(closed.getsockname()[1])


@pytest.mark.parametrize("command", [["status"], ["pending", "orders.delay"], ["pause", "orders.delay"]])
def test_brokers_can_be_given_instead_of_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    brokers = f"127.0.0.1:{closed_port()}"
    done = run(*command, "--brokers", brokers)
    if command[0] == "pause":
        assert (done.exit_code, "not a configured delay topic" in done.stderr) == (2, True)
    else:
        assert (done.exit_code, f"{brokers} does not answer" in done.stderr) == (1, True)


def test_given_brokers_replace_those_of_the_configuration(config_file: Path) -> None:
    brokers = f"127.0.0.1:{closed_port()}"
    done = run("status", "-c", config_file, "--brokers", brokers)
    assert done.exit_code == 1
    assert f"{brokers} does not answer" in done.stderr
    refused = run("status", "-c", config_file, "--brokers", brokers, "--api", "https://x", "--token-file", config_file)
    assert (refused.exit_code, "leave out --api" in refused.stderr) == (2, True)


LOAD = {"--rate": "5000", "--delay": "7d", "--size": "500", "--partitions": "12", "--brokers": "3"}


def planned(*more: str, **changed: str) -> Result:
    load = LOAD | {f"--{option}": value for option, value in changed.items()}
    return run("plan", *(part for pair in load.items() for part in pair), *more)


def test_a_plan_needs_no_configuration_and_no_cluster() -> None:
    shown = planned()
    assert shown.exit_code == 0, shown.output
    assert re.search("^processes +2 +one of them may be away", shown.stdout, re.MULTILINE)
    assert "note: give the target as many partitions as the delay topic" in shown.stdout
    answer = json.loads(planned("--json").stdout)
    assert answer["pending"] == 3_024_000_000
    assert answer["memory_bytes"] == sum(answer["memory"].values())
    assert json.loads(planned("--json", size="500B").stdout) == answer


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("rate", "0", "0 is not in the range 1<=x<=1000000000"),
        ("rate", "fast", "'fast' is not a valid integer"),
        ("delay", "7", "the unit is missing"),
        ("delay", "0", "records that do not wait need no router"),
        ("delay", "40000d", "is more than 36500d"),
        ("size", "5k", "unknown unit 'k'"),
        ("size", "0", "a record has at least one byte"),
        ("size", "²", "a size is written like"),
        ("partitions", "-1", "-1 is not in the range"),
        ("brokers", "0", "0 is not in the range"),
    ],
)
def test_a_load_that_cannot_be_is_refused_by_its_option(option: str, value: str, said: str) -> None:
    refused = planned(**{option: value})
    assert refused.exit_code == 2
    assert f"Invalid value for '--{option}': " in refused.stderr
    assert said in refused.stderr


METRICS = """
# TYPE delay_router_records_indexed counter
delay_router_records_indexed_total{topic="a"} 12.0
# TYPE delay_router_records_released counter
delay_router_records_released_total{topic="a",target="x"} 7.0
delay_router_records_released_total{topic="a",target="y"} 3.0
# TYPE delay_router_records_rejected counter
delay_router_records_rejected_total{topic="a",reason="INVALID_SCHEDULE"} 2.0
# TYPE delay_router_release_lateness_seconds histogram
delay_router_release_lateness_seconds_bucket{topic="a",le="0.001"} 0.0
delay_router_release_lateness_seconds_bucket{topic="a",le="0.002"} 50.0
delay_router_release_lateness_seconds_bucket{topic="a",le="0.01"} 98.0
delay_router_release_lateness_seconds_bucket{topic="a",le="+Inf"} 100.0
delay_router_release_lateness_seconds_count{topic="a"} 100.0
delay_router_release_lateness_seconds_sum{topic="a"} 0.4
"""


def test_status_adds_up_metrics_by_topic() -> None:
    (topic,) = topics_of(METRICS)
    assert (topic.topic, topic.indexed, topic.released, topic.rejected) == ("a", 12, 10, 2)
    assert topic.lateness_p50_ms == 2.0
    assert topic.lateness_p99_ms == 10.0


def test_logs_are_one_json_object_a_line_whatever_is_in_them() -> None:
    log_lines = StringIO()
    events.configure("info", log_lines)
    log = structlog.get_logger()
    log.debug("not_shown")
    log.info("topic_seen", topic='a\r\n{"forged": 1}\x1b[31m', raw=b"\x00\xff", long="x" * 5_000, number=1)
    logging.getLogger("uvicorn.error").warning("port %d", 80)
    logging.getLogger("uvicorn.error").info("chatter")
    events.librdkafka_logger().error("FAIL %s", "broker down")
    try:
        json.loads("{}")["x"]
    except KeyError:
        log.exception("failed")
    lines = log_lines.getvalue().splitlines()
    seen, uvicorn, librdkafka, failed = (json.loads(line) for line in lines)
    assert seen["event"] == "topic_seen"
    assert seen["topic"] == 'a\r\n{"forged": 1}\x1b[31m'
    assert "\x1b" not in lines[0]
    assert seen["raw"] == "b'\\x00\\xff'"
    assert seen["long"] == "x" * 1_000 + "… (5000 characters)"
    assert seen["number"] == 1
    assert (seen["level"], seen["timestamp"][-1]) == ("info", "Z")
    assert (uvicorn["library"], uvicorn["message"], uvicorn["level"]) == ("uvicorn.error", "port 80", "warning")
    assert (librdkafka["library"], librdkafka["message"]) == ("librdkafka", "FAIL broker down")
    assert "KeyError: 'x'" in failed["exception"]


@pytest.mark.parametrize(
    ("given", "remedy"), [("target/billing", "--target billing"), ("topic/orders.delay", "write orders.delay")]
)
@pytest.mark.parametrize("command", ["pause", "resume"])
def test_the_scope_of_a_policy_is_no_topic_and_the_remedy_is_told(
    config_file: Path, command: str, given: str, remedy: str
) -> None:
    done = run(command, given, "--config", config_file)
    assert done.exit_code == 2
    assert remedy in done.stderr


RETRY = """default_target = "orders"
retry = {first = "1s", factor = 2, max = "3s", jitter = 0.1, attempts = 3, dead_letter = "orders.dlq"}
"""


def test_the_ladder_of_a_retry_topic_is_explained(config_file: Path) -> None:
    config_file.write_text(config_file.read_text() + '[[delay_topics]]\nname = "orders.retry"\n' + RETRY)
    shown = run("retries", "explain", "orders.retry", "--config", config_file)
    assert shown.exit_code == 0, shown.output
    assert [line.split() for line in shown.output.splitlines()] == [
        ["attempt", "wait", "at", "least", "total"],
        ["1", "1s", "900ms", "1s"],
        ["2", "2s", "1s", "800ms", "3s"],
        ["3", "3s", "2s", "700ms", "6s"],
        ["then:", "orders.dlq,", "at", "once,", "with", "delay-attempts-exhausted:", "3"],
    ]
    told = json.loads(run("retries", "explain", "orders.retry", "--json", "--config", config_file).output)
    assert told["dead_letter"] == "orders.dlq"
    assert told["attempts"][2] == {"attempt": 3, "at_least_ms": 2_700, "wait_ms": 3_000, "total_ms": 6_000}


def test_a_delay_topic_without_attempts_has_no_ladder(config_file: Path) -> None:
    done = run("retries", "explain", "orders.delay", "--config", config_file)
    assert done.exit_code == 2
    assert "orders.delay counts no attempts" in done.stderr

"""The command line of the jobs, as far as it works without Spark."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import click
import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException
from pyspark.errors import PySparkException

from index.errors import ConfigError
from spark_backfill import jars
from spark_backfill.build.index_command import by_partition, job_name
from spark_backfill.cli import JOBS, cli
from spark_backfill.cli_common import FAILED, WRONG_USAGE, JobCommands, first_lines
from spark_backfill.errors import JobError
from spark_backfill.session import log_settings, spark_defaults, submit_arguments
from tests.support.paths import ROOT

CONFIG = '[kafka]\n"bootstrap.servers" = "localhost:1"\n[[delay_topics]]\nname = "orders.delay"\n'


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "delay-router.toml"
    file.write_text(CONFIG)
    return str(file)


def test_every_job_is_listed_and_explains_itself() -> None:
    listed = CliRunner().invoke(cli, ["--help"])
    assert listed.exit_code == 0
    assert "..." not in listed.output.partition("Commands:")[2], "a summary is cut"
    for job in JOBS:
        assert f"\n  {job} " in listed.output
        explained = CliRunner().invoke(cli, [job, "--help"])
        assert explained.exit_code == 0
        assert "--config" in explained.output
        assert "--conf " in explained.output


@pytest.mark.parametrize("job", ["index", "rebuild"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "orders"], "'orders' is not a configured delay topic; those are: orders.delay"),
        (["--topic", "orders.delay", "--job", "a/b"], "--job: 'a/b' is no name of a job"),
        ([], "Missing option '--topic'"),
        (["--topic", "orders.delay", "--task-records", "1"], "1 is not in the range"),
    ],
)
def test_wrong_usage_is_refused_before_spark_is_started(
    config: str, job: str, arguments: list[str], message: str
) -> None:
    done = CliRunner().invoke(cli, [job, "--config", config, *arguments])
    assert done.exit_code == WRONG_USAGE
    assert message in done.output


@pytest.mark.parametrize("option", ["--released-before", "--settle"])
def test_a_time_that_cannot_be_read(config: str, option: str) -> None:
    done = CliRunner().invoke(cli, ["rebuild", "--config", config, "--topic", "orders.delay", option, "yesterday"])
    assert done.exit_code == WRONG_USAGE
    assert f"{option} 'yesterday'" in done.output


def test_offsets_by_partition() -> None:
    assert by_partition("--from", ("0=5", "12=0")) == {0: 5, 12: 0}
    for wrong in ("5", "0=", "=5", "0=-1", "a=1", "0=1=2", "0=1.5"):
        with pytest.raises(ConfigError, match=r"--from .*written PARTITION=OFFSET"):
            by_partition("--from", (wrong,))


def test_names_of_jobs() -> None:
    assert job_name("nightly.2026-11") == "nightly.2026-11"
    with pytest.raises(ConfigError, match="--job"):
        job_name("x" * 65)


def test_a_failed_job_is_one_line_and_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise JobError("Maven is missing")

    monkeypatch.setattr(jars, "connector_jars", fail)
    done = CliRunner().invoke(cli, ["jars"])
    assert (done.exit_code, done.output) == (FAILED, "error: Maven is missing\n")


def test_the_stack_of_the_jvm_is_left_out() -> None:
    assert first_lines("it failed\n\n\tat a.b.C\nCaused by: this\n\tat d.e.F") == "it failed\nCaused by: this"


def test_defaults_give_way_to_what_is_set_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("# mine\nspark.master  yarn\nspark.jars=a.jar\nspark.empty\n")
    assert spark_defaults({"SPARK_CONF_DIR": str(tmp_path)}) == {
        "spark.master": "yarn",
        "spark.jars": "a.jar",
        "spark.empty": "",
    }
    assert spark_defaults({"SPARK_HOME": str(tmp_path)}) == {}
    given = {"PYSPARK_SUBMIT_ARGS": "--master local[1] --conf spark.a=b=c --packages p:q:1 pyspark-shell"}
    assert submit_arguments(given) == {
        "spark.master": "local[1]",
        "spark.a": "b=c",
        "spark.jars.packages": "p:q:1",
    }


def test_spark_logs_errors_only_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    ((key, option),) = log_settings({"SPARK_CONF_DIR": str(tmp_path)}).items()
    assert key == "spark.driver.defaultJavaOptions"
    named = Path(url2pathname(urlsplit(option.partition("=")[2]).path))
    assert "rootLogger.level = error\n" in named.read_text(encoding="utf-8")
    assert log_settings({}) == {key: option}
    (tmp_path / named.name).write_text("rootLogger.level = info\n")
    assert log_settings({"SPARK_CONF_DIR": str(tmp_path)}) == {}


def test_the_version_of_the_connector_stands_in_one_place() -> None:
    assert jars.connector_version().count(".") == 2
    room = Path(jars.__file__).parent
    named = [path.name for path in room.iterdir() if path.is_file() and jars.connector_version() in path.read_text()]
    assert named == ["pom.xml"]


def test_jobs_are_commands() -> None:
    context = click.Context(cli)
    assert {type(cli.get_command(context, job)) for job in JOBS} == {click.Command}


def test_the_zip_for_executors_is_all_that_a_job_needs_of_this_project(tmp_path: Path) -> None:
    archive = tmp_path / "made" / "jobs.zip"
    subprocess.run(["make", "spark-zip", f"SPARK_ZIP={archive}", f"PYTHON={sys.executable}"], cwd=ROOT, check=True)
    program = (
        "import sys; sys.path = [path for path in sys.path if 'site-packages' in path or 'lib' in path];"
        f"sys.path.insert(0, {str(archive)!r});"
        "from spark_backfill import cli, jars; from spark_backfill.build import index_job, rebuild_job;"
        "from spark_backfill.audit import command; from spark_backfill.schedule import command;"
        "from spark_backfill.buckets import sink; from spark_backfill.export import command, job;"
        "print(jars.__file__, jars.connector_version())"
    )
    # Isolated, so that neither the working directory nor an editable install can supply modules.
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"{archive}/spark_backfill/jars.py", jars.connector_version()]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), True),
        (PySparkException("org.apache.kafka.common.errors.GroupAuthorizationException: no"), True),
        (KafkaException(KafkaError(KafkaError._TRANSPORT)), False),
    ],
)
def test_missing_rights_are_told_with_the_command_that_lists_them(error: Exception, *, told: bool) -> None:
    @click.group(cls=JobCommands)
    def group() -> None:
        """Have one job."""

    @group.command("index")
    def index() -> None:
        raise error

    done = CliRunner().invoke(group, ["index"])
    assert (done.exit_code, "delay-router check --acls --job index" in done.stderr) == (FAILED, told), done.output

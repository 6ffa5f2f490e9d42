"""Tests of the image of the Spark jobs: its content, and a job that runs in it, if a Docker engine answers."""

import json
import re
from pathlib import Path
from typing import Final

import pytest

from sidecar.dev import local_kafka
from spark_backfill.jars import CONNECTOR, connector_jars
from tests.image import engine
from tests.image.engine import docker
from tests.integration.scenario import Stage, now_ms
from tests.spark.backfill import config_file, delay_topic

TAG: Final = "kafka-delay-router-spark:test"

pytestmark = pytest.mark.timeout(1_800)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the image, built once."""
    base, spark = engine.base_image(), engine.spark_image()
    engine.build_spark(base, spark, connector_jars(print), TAG, tmp_path_factory.mktemp("context"))
    return TAG


def test_its_lock_file_pins_what_the_other_ones_pin_and_leaves_spark_to_its_image() -> None:
    pins = {}
    for name in ("requirements-spark.lock", "requirements-dev.lock"):
        text = (engine.ROOT / name).read_text()
        pins[name] = set(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
    own, dev = pins.values()
    assert own <= dev
    names = {name for name, _ in own}
    assert names >= {"confluent-kafka", "pyarrow", "pandas", "numpy", "protobuf", "pyroaring", "click", "rich"}
    assert not names & {"pyspark", "py4j"}


def test_it_runs_as_nobody_with_the_connector_among_the_jars(image: str) -> None:
    listed = docker("run", "--rm", "--network", "none", "--entrypoint", "ls", image, "/opt/spark/jars")
    assert any(jar.startswith(CONNECTOR) for jar in listed.split())
    assert engine.inspect(image)["Config"]["User"] == "10001:10001"
    told = docker("run", "--rm", "--network", "none", image, "python3", "-m", "spark_backfill", "--help")
    assert "export" in told
    ask = "from spark_backfill import kernel; print(kernel.chosen().name)"
    assert docker("run", "--rm", "--network", "none", image, "python3", "-c", ask) == "native"


def test_it_exports_what_is_pending(image: str, kafka: local_kafka.Cluster, tmp_path: Path) -> None:
    stage = Stage(kafka.bootstrap, tmp_path)
    delay = delay_topic(stage, default_target=stage.target())
    stage.send(delay, ("deliver-at", b"%d" % (now_ms() + 60_000)), value=b"v")
    file = config_file(stage, tmp_path)
    file.chmod(0o644)
    tmp_path.chmod(0o755)
    options = ("--rm", "--network", "host", "--volume", f"{file}:/etc/delay-router.toml:ro")
    command = ("python3", "-m", "spark_backfill", "export", "/tmp/t", "--config", "/etc/delay-router.toml")  # noqa: S108
    told = docker("run", *options, image, *command, "--topic", delay, "--json", timeout_s=300)
    assert json.loads(told.splitlines()[-1])["not_indexed"] == 1

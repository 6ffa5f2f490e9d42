"""Tests the example of a job by the Spark operator: its schema, and that the program accepts its arguments.

The operator's own definition is not available here; the schema beside this test has only the fields of the example,
from the operator's reference of v1beta2.
"""

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

from spark_backfill import session
from spark_backfill.cli import cli
from tests.image.engine import ROOT

_FILE = ROOT / "helm" / "spark-application.yaml"
_SCHEMA = json.loads(Path(__file__).with_name("spark_application.schema.json").read_text(encoding="utf-8"))


@pytest.fixture
def example() -> dict[str, Any]:
    loaded = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def test_it_is_one_that_the_operator_takes(example: dict[str, Any]) -> None:
    jsonschema.validate(example, _SCHEMA)
    wrong = deepcopy(example)
    wrong["spec"]["driver"]["memory"] = "1 GiB"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, _SCHEMA)


def test_the_program_takes_its_arguments(example: dict[str, Any]) -> None:
    name, *arguments = example["spec"]["arguments"]
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    parsed = command.make_context(name, arguments)
    assert (parsed.params["name"], parsed.params["kind"]) == ("orders.delay", "parquet")
    mounts = {each["mountPath"] for each in example["spec"]["driver"]["volumeMounts"]}
    assert str(parsed.params["config_file"].parent) in mounts


def test_it_runs_what_the_image_has_with_what_a_session_of_ours_sets(example: dict[str, Any]) -> None:
    dockerfile = (ROOT / "Dockerfile.spark").read_text(encoding="utf-8")
    program = example["spec"]["mainApplicationFile"].removeprefix("local://")
    assert f" {program} " in dockerfile
    assert re.search(rf"^ARG SPARK=\S+:{re.escape(example['spec']['sparkVersion'])}-", dockerfile, re.MULTILINE)
    ours = {key: value for key, value in session.DEFAULTS.items() if key.startswith("spark.sql.")}
    assert ours.items() <= example["spec"]["sparkConf"].items()
    volumes = {each["name"] for each in example["spec"]["volumes"]}
    assert {each["name"] for each in example["spec"]["driver"]["volumeMounts"]} <= volumes

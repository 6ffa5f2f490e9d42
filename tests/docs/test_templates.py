"""Tests the forms for issues: they are as GitHub reads them, and the commands that they ask for exist."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.docs.command_lines import arguments_of, commands, mentioned
from tests.support.paths import ROOT

FORMS: Final = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def form(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


@pytest.mark.parametrize("path", [path for path in FORMS if path.stem != "config"], ids=lambda path: path.stem)
def test_a_form_is_complete_and_asks_for_the_version(path: Path) -> None:
    content = form(path)
    assert content["name"]
    assert content["description"]
    fields = {each["id"]: each for each in content["body"] if each["type"] in ("input", "textarea")}
    assert len(fields) == len([each for each in content["body"] if each["type"] != "markdown"])
    assert "delay-router --version" in fields["version"]["attributes"]["description"]
    assert any(each.get("validations", {}).get("required") for each in fields.values())


def test_a_bug_comes_with_the_output_of_check() -> None:
    (check,) = [
        each for each in form(ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml")["body"] if each.get("id") == "check"
    ]
    assert "`delay-router check`" in check["attributes"]["description"]
    assert check["validations"]["required"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_the_commands_of_a_form_exist(path: Path) -> None:
    for named in re.findall(r"`([^`]+)`", path.read_text(encoding="utf-8")):
        for words in commands(named):
            arguments = arguments_of(words)
            if arguments and arguments != ["--version"]:
                mentioned(arguments)

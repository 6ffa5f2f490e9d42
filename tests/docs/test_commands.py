"""Tests that every command in a document exists and accepts its options."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Final

import click
import pytest

from sidecar.cli.program import Later, cli
from tests.docs import command_lines
from tests.docs.command_lines import NotTaken, arguments_of, commands, job_arguments_of, module_of
from tests.docs.documents import blocks, current, spans
from tests.support.paths import ROOT

SHELL: Final = ("sh", "")
COMPOSE: Final = ROOT / "compose.yaml"

Line = tuple[str, list[str]]


@cache
def printed() -> list[Line]:
    """Return every command in a block of shell, with its place."""
    found = [
        (block.place, words)
        for document in current()
        for block in blocks(document)
        if block.language in SHELL
        for words in commands(block.text)
    ]
    units = [
        (block.place, shlex.split(line))
        for document in current()
        for block in blocks(document)
        if block.language == "ini"
        for line in re.findall(r"^ExecStart=(.*)$", block.text, re.MULTILINE)
    ]
    comments = re.findall(r"^# +(docker compose .*)$", COMPOSE.read_text(encoding="utf-8"), re.MULTILINE)
    return [*found, *units, *((COMPOSE.name, words) for line in comments for words in commands(line))]


@cache
def named() -> list[Line]:
    """Return every command within a sentence, with its place."""
    return [
        (span.place, words)
        for document in current()
        for span in spans(document)
        if "\n" not in span.text
        for words in commands(span.text)
    ]


def test_commands_are_found_where_they_are() -> None:
    called = {place.partition(":")[0] for place, words in printed() if arguments_of(words)}
    assert called == {
        "README.md",
        "OPERATIONS.md",
        "RUNBOOK.md",
        "PRODUCERS.md",
        "JOBS.md",
        "helm/delay-router/README.md",
        "compose.yaml",
    }
    assert ["completion", "bash"] in [arguments_of(words) for _, words in printed()]
    assert ["run", "--config", "/etc/delay-router/delay-router.toml"] in [arguments_of(words) for _, words in printed()]


@pytest.mark.parametrize(("place", "words"), [each for each in printed() if arguments_of(each[1]) is not None])
def test_the_program_takes_what_is_printed(place: str, words: list[str]) -> None:
    arguments = arguments_of(words)
    assert arguments is not None
    command_lines.parse(arguments)


def examples(command: click.Command, name: str = "") -> Iterator[Line]:
    """Yield the examples in the help of a command and of its own commands, with the name of the command."""
    command = command.load() if isinstance(command, Later) else command
    lines = [line for line in (command.epilog or "").splitlines() if "delay-router" in line]
    yield from ((name, words) for line in lines for words in commands(line))
    if isinstance(command, click.Group):
        for below, each in command.commands.items():
            yield from examples(each, f"{name} {below}".strip())


def test_the_program_takes_the_examples_in_its_help() -> None:
    found = [*examples(cli)]
    assert len({name for name, _ in found}) > 5, "they were not found"
    for name, words in found:
        arguments = arguments_of(words)
        assert arguments is not None, name
        assert not name or arguments[: len(name.split())] == name.split()
        command_lines.parse(arguments)


@pytest.mark.parametrize(("place", "words"), [each for each in named() if arguments_of(each[1]) is not None])
def test_the_program_has_what_is_named(place: str, words: list[str]) -> None:
    arguments = arguments_of(words)
    assert arguments is not None
    command_lines.mentioned(arguments)


@pytest.mark.parametrize(("place", "words"), [each for each in printed() if job_arguments_of(each[1])])
def test_the_jobs_take_what_is_printed(place: str, words: list[str]) -> None:
    command_lines.parse_job(job_arguments_of(words) or [])


@pytest.mark.parametrize(("place", "words"), [each for each in [*printed(), *named()] if module_of(each[1])])
def test_a_module_that_is_run_is_there(place: str, words: list[str]) -> None:
    module = module_of(words)
    assert module is not None
    assert module in ("venv", "pip") or command_lines.is_module(module)


@pytest.mark.parametrize(("place", "words"), [each for each in [*printed(), *named()] if each[1][0] == "make"])
def test_make_has_the_target(place: str, words: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for word in words[1:]:
        variable, is_set, _ = word.partition("=")
        if is_set:
            assert re.search(rf"\b{variable}\b", makefile), f"{place}: make knows no variable {variable}"
        else:
            assert re.search(rf"^{re.escape(word)}:", makefile, re.MULTILINE), f"{place}: make has no target {word}"


@pytest.mark.parametrize(
    "wrong",
    ["delay-router chek", "delay-router send", "delay-router status --wid", "delay-router rejected lst orders.delay"],
)
def test_a_wrong_command_is_told(wrong: str) -> None:
    (words,) = commands(wrong)
    with pytest.raises(NotTaken):
        command_lines.parse(arguments_of(words) or [])


def test_a_wrong_name_in_a_sentence_is_told() -> None:
    for wrong in ("delay-router chek", "delay-router status --wid", "delay-router rejected lst"):
        (words,) = commands(wrong)
        with pytest.raises(NotTaken):
            command_lines.mentioned(arguments_of(words) or [])


def test_a_script_is_taken_apart() -> None:
    script = "A=1 B='x y' make wheel | tee log # as ever\nsudo eval \"$(delay-router completion bash)\" &\n"
    assert [*commands(script)] == [
        ["make", "wheel"],
        ["tee", "log"],
        ["substituted"],
        ["delay-router", "completion", "bash"],
    ]
    assert arguments_of(["kubectl", "exec", "p", "--", "delay-router", "status"]) == ["status"]
    assert arguments_of(["systemctl", "restart", "delay-router"]) is None

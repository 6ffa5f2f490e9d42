"""Command lines as documents print them, and whether the program that they call would take them."""

import importlib.util
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

import click

from sidecar.cli.program import PROGRAM, cli
from spark_backfill.cli import cli as jobs

_SEPARATORS: Final = frozenset({"|", "||", "&", "&&", ";", "(", ")", "<", ">", ">>"})
_BEFORE: Final = frozenset({"sudo", "exec", "eval", "time"})
_SUBSTITUTED: Final = re.compile(r"\$\(([^()]+)\)")


class NotTaken(Exception):
    """A command line that the program would refuse."""


def commands(text: str) -> Iterator[list[str]]:
    """Each simple command of a shell script, word by word, without variables that are set in front of it.

    >>> list(commands("A=1 make wheel | tee log # as ever"))
    [['make', 'wheel'], ['tee', 'log']]
    """
    for line in text.replace("\\\n", " ").splitlines():
        # A command within another's argument is a command, too.
        for script in (_SUBSTITUTED.sub("substituted", line), *_SUBSTITUTED.findall(line)):
            yield from (words for words in _simple(script) if words)


def _simple(script: str) -> Iterator[list[str]]:
    read = shlex.shlex(script, posix=True, punctuation_chars=True)
    read.whitespace_split = True
    words: list[str] = []
    try:
        for word in read:
            if word in _SEPARATORS:
                yield words
                words = []
            elif words or not (word in _BEFORE or re.match(r"\w+=", word)):
                words.append(word)
    except ValueError:
        # A quotation that goes on in the next line: of a script of awk, or a function.
        return
    yield words


def arguments_of(words: Sequence[str]) -> list[str] | None:
    """What ``delay-router`` is called with, directly or in a container; None for another program."""
    if "--" in words and words[0] == "kubectl":
        words = words[list(words).index("--") + 1 :]
    elif list(words[:3]) == ["docker", "compose", "exec"]:
        words = words[4:]
    if words and words[0].rpartition("/")[2] == PROGRAM:
        return list(words[1:])
    return None


def job_arguments_of(words: Sequence[str]) -> list[str] | None:
    """What ``python -m spark_backfill`` is called with; None for another program."""
    return list(words[3:]) if list(words[1:3]) == ["-m", "spark_backfill"] else None


def module_of(words: Sequence[str]) -> str | None:
    """The module that ``python -m`` runs."""
    return (
        words[2] if len(words) > 2 and words[0].rpartition("/")[2].startswith("python") and words[1] == "-m" else None
    )


def parse(arguments: Sequence[str], program: click.Group = cli) -> None:
    """Have the program's own parser read them, and run nothing; NotTaken when it refuses them."""
    group: click.Command = program
    try:
        context = group.make_context(PROGRAM, list(arguments))
        while isinstance(context.command, click.Group):
            name, found, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
            assert found is not None
            context = found.make_context(name, rest, parent=context)
    except click.exceptions.Exit:
        # --help and --version.
        return
    except click.ClickException as error:
        raise NotTaken(f"{PROGRAM} {shlex.join(arguments)}: {error.format_message()}") from None


def parse_job(arguments: Sequence[str]) -> None:
    """The same for ``python -m spark_backfill``; of a form, which has optional parts in brackets, only the names."""
    if any(word.startswith("[--") for word in arguments):
        mentioned([word.strip("[]") for word in arguments], jobs)
    else:
        parse(arguments, jobs)


def mentioned(arguments: Sequence[str], program: click.Group = cli) -> None:
    """For a command that is named within a sentence: it exists, with each of these options; values may be left out."""
    command: click.Command = program
    words = list(arguments)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words.pop(0))
        if found is None:
            raise NotTaken(f"{PROGRAM} {shlex.join(arguments)}: there is no such command")
        # What stands in the list of commands is loaded when it is called.
        command = getattr(found, "load", lambda found=found: found)()
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("--") and word.partition("=")[0] not in known | {"--help"}:
            raise NotTaken(f"{PROGRAM} {shlex.join(arguments)}: there is no option {word}")


def is_module(name: str) -> bool:
    """Whether ``python -m`` finds it."""
    return importlib.util.find_spec(name) is not None

"""Extracts command lines from documents, and checks whether the called program accepts them."""

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
    """Yield each simple command of a shell script, word by word, without preceding variable assignments.

    >>> list(commands("A=1 make wheel | tee log # as ever"))
    [['make', 'wheel'], ['tee', 'log']]
    """
    for line in text.replace("\\\n", " ").splitlines():
        # A command within another command's argument counts, too.
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
        # A quotation continues in the next line, as in an awk script or a function.
        return
    yield words


def arguments_of(words: Sequence[str]) -> list[str] | None:
    """Return the arguments of ``delay-router``, called directly or in a container; None for another program."""
    if "--" in words and words[0] == "kubectl":
        words = words[list(words).index("--") + 1 :]
    elif list(words[:3]) == ["docker", "compose", "exec"]:
        words = words[4:]
    if words and words[0].rpartition("/")[2] == PROGRAM:
        return list(words[1:])
    return None


def job_arguments_of(words: Sequence[str]) -> list[str] | None:
    """Return the arguments of ``python -m spark_backfill``; None for another program."""
    return list(words[3:]) if list(words[1:3]) == ["-m", "spark_backfill"] else None


def module_of(words: Sequence[str]) -> str | None:
    """Return the module that ``python -m`` runs, or None."""
    return (
        words[2] if len(words) > 2 and words[0].rpartition("/")[2].startswith("python") and words[1] == "-m" else None
    )


def parse(arguments: Sequence[str], program: click.Group = cli) -> None:
    """Let the program's own parser read the arguments, without running anything. Raise NotTaken if it refuses them."""
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
    """Parse the arguments of ``python -m spark_backfill``; check the names only if a form has parts in brackets."""
    if any(word.startswith("[--") for word in arguments):
        mentioned([word.strip("[]") for word in arguments], jobs)
    else:
        parse(arguments, jobs)


def mentioned(arguments: Sequence[str], program: click.Group = cli) -> None:
    """Check a command within a sentence: it exists, and has each of these options; values may be missing.

    Raise NotTaken otherwise.
    """
    command: click.Command = program
    words = list(arguments)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words.pop(0))
        if found is None:
            raise NotTaken(f"{PROGRAM} {shlex.join(arguments)}: there is no such command")
        # A command in the list of commands is loaded when it is called.
        command = getattr(found, "load", lambda found=found: found)()
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("--") and word.partition("=")[0] not in known | {"--help"}:
            raise NotTaken(f"{PROGRAM} {shlex.join(arguments)}: there is no option {word}")


def is_module(name: str) -> bool:
    """Say whether ``python -m`` finds the module."""
    return importlib.util.find_spec(name) is not None

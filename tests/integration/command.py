"""Runs commands of ``delay-router`` in this process against a broker."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from sidecar.cli.program import cli
from sidecar.config.model import Config, load


@dataclass(frozen=True)
class Command:
    """A configuration file, and commands that read it."""

    file: Path
    topic: str

    def __call__(self, command: str, *arguments: object, stdin: bytes | None = None) -> Result:
        """Run a command with ``--config`` added."""
        return CliRunner().invoke(cli, [command, "-c", str(self.file), *map(str, arguments)], input=stdin)

    def json(self, command: str, *arguments: object) -> Any:
        """Run a command with ``--json`` and return its output."""
        return json.loads(self(command, "--json", *arguments).stdout)

    @property
    def config(self) -> Config:
        """The configuration of the commands."""
        return load(self.file, {})


def command_for(folder: Path, bootstrap: str, unique_name: Callable[[str], str], extra: str = "") -> Command:
    """Write a configuration with one delay topic of a unique name; `extra` adds keys to that topic."""
    topic = unique_name("orders") + ".delay"
    file = folder / "router.toml"
    file.write_text(
        f"""
[kafka]
"bootstrap.servers" = "{bootstrap}"
[router]
group_id = "{unique_name("router")}"
policies_topic = "__{topic}.policies"
status_topic = "__{topic}.status"
[[delay_topics]]
name = "{topic}"
default_target = "{topic}-target"
{extra}
"""
    )
    return Command(file, topic)

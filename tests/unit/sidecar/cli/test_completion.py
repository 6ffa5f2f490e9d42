"""Completion: a script for each shell, and the words it offers."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sidecar.cli.policy import parsed, shown_value
from sidecar.cli.program import cli


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert f"_DELAY_ROUTER_COMPLETE={shell}_complete" in result.output


def completed(folder: Path, *words: str) -> list[str]:
    """Return the completions that bash gets for a line of these words, of which the last is incomplete."""
    environ = {
        **os.environ,
        "_DELAY_ROUTER_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["delay-router", *words]),
        "COMP_CWORD": str(len(words)),
        "DELAY_ROUTER_CONFIG": str(folder / "router.toml"),
    }
    call = [sys.executable, "-c", "from sidecar.cli.program import main; main()"]
    done = subprocess.run(call, env=environ, capture_output=True, text=True, timeout=60, check=False)
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_delay_topics_come_from_the_configuration(tmp_path: Path) -> None:
    topics = "".join(f'[[delay_topics]]\nname = "{name}"\ndefault_target = "t"\n' for name in ("orders.d", "bills.d"))
    (tmp_path / "router.toml").write_text(f'[kafka]\n"bootstrap.servers" = "localhost:1"\n{topics}')
    assert completed(tmp_path, "pause", "o") == ["orders.d"]
    assert completed(tmp_path, "policy", "set", "topic/b") == ["topic/bills.d"]
    assert completed(tmp_path, "policy", "set", "default", "max") == ["max_delay="]
    (tmp_path / "router.toml").write_text("broken")
    assert completed(tmp_path, "pause", "o") == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("paused=true", True),
        ("enabled=False", False),
        ("paused=maybe", "maybe"),
        ("records_per_second=50", 50),
        ("records_per_second=many", "many"),
        ("max_delay=0", "0"),
        ("default_target=", ""),
        ("allowed_targets=a, b.*", ["a", "b.*"]),
        ("allowed_targets=", []),
        ('retry={"attempts": 3, "jitter": 0.1}', {"attempts": 3, "jitter": 0.1}),
    ],
)
def test_settings_are_read_as_json_would_spell_them(text: str, value: object) -> None:
    assert parsed(text) == (text.partition("=")[0], value)


def test_a_table_that_is_no_json_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="retry: a table as JSON is needed"):
        parsed("retry=off")


def test_values_are_shown_as_they_are_given() -> None:
    shown = [shown_value(value) for value in (True, 5, "7d", "", ["a", "b"], [])]
    assert shown == ["true", "5", "7d", '""', "a,b", "(none)"]

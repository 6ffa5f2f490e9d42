"""Runs the commands of a procedure of OPERATIONS, one after the other, with the names of a test.

    names = {"orders.delay": delay, "localhost:9092": stage.bootstrap}
    procedure = Procedure("Adding partitions", router.config, names)
    procedure.run("kafka-topics.sh")
    procedure.run("delay-router init")
    assert delay in procedure.run("delay-router status")
    procedure.finish()

A test names the beginning of each command, so that it fails when the document has other steps.
"""

import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.docs.command_lines import arguments_of, commands
from tests.docs.documents import blocks
from tests.support import kafka_tools
from tests.support.paths import ROOT

DOCUMENT: Final = ROOT / "OPERATIONS.md"

_TOOLS: Final[Mapping[str, str]] = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
}
_WITHIN_S: Final = 60.0

Program = Callable[[Sequence[str]], str]
"""Runs a program with these arguments, and returns its output."""


class Procedure:
    """The commands of a section, without those that were run.

    ``names`` maps printed names to those of the test. ``config`` is the configuration of commands that name none.
    ``programs`` run what ``python`` is called with: a module or a file.
    """

    def __init__(
        self, section: str, config: Path, names: Mapping[str, str], programs: Mapping[str, Program] | None = None
    ) -> None:
        self.config = config
        self.names = dict(names)
        self._programs = programs or {}
        texts = [block.text for block in blocks(DOCUMENT, section) if block.language == "sh"]
        self._left = deque(words for text in texts for words in commands(text))
        assert self._left, f"OPERATIONS has no commands under {section!r}"

    def run(self, begin: str, *, until: str = "") -> str:
        """Run the next command, and return its output; with ``until`` again and again until the output has this text.

        Raise AssertionError if the document has another command there, or the command fails.
        """
        words = self._next(begin)
        deadline_s = time.monotonic() + _WITHIN_S
        while until not in (output := self._run(words)):
            assert time.monotonic() < deadline_s, f"{words} never says {until!r}:\n{output}"
            time.sleep(0.5)
        return output

    def skip(self, begin: str) -> None:
        """Pass over the next command, which the test plays by other means."""
        self._next(begin)

    def finish(self) -> None:
        """Raise AssertionError if the document has further commands."""
        assert not self._left, f"were not run: {[*self._left]}"

    def _next(self, begin: str) -> list[str]:
        words = self._left.popleft() if self._left else []
        assert " ".join(words).startswith(begin), f"the document says {words}, and the test expects {begin!r}"
        return words

    def _run(self, words: Sequence[str]) -> str:
        program, *printed = words
        arguments = [self._named(word) for word in printed]
        if program == "python":
            first = 1 if printed[0] == "-m" else 0
            return self._programs[printed[first]](arguments[first + 1 :])
        if program in _TOOLS:
            return _output(kafka_tools.command(_TOOLS[program], *arguments))
        assert arguments_of(words) is not None, f"nothing runs {words}"
        given = [] if "--config" in arguments else ["--config", str(self.config)]
        return _output([sys.executable, "-m", "sidecar", *arguments, *given])

    def _named(self, word: str) -> str:
        """Replace each printed name; a longer one is tried first."""
        printed = sorted(map(re.escape, self.names), key=len, reverse=True)
        return re.sub("|".join(printed), lambda found: self.names[found[0]], word)


def _output(call: Sequence[str]) -> str:
    done = subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 0, f"{call} ended with {done.returncode}:\n{output}"
    return output

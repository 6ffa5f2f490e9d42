"""Log lines on their way to a reader that is slow, gone, or never there."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest

from sidecar.logs.lines import LineWriter


class Pipe:
    """A pipe whose reader is the test."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def read_lines(self, until: str) -> list[str]:
        """Read all lines up to the one that contains `until`."""
        received = b""
        while until.encode() not in received or not received.endswith(b"\n"):
            received += os.read(self.reader, 1 << 16)
        return received.decode().splitlines()

    def fill(self) -> None:
        """Fill the pipe, as if its reader had stopped long ago."""
        os.set_blocking(self.writer, False)
        with suppress(BlockingIOError):
            while True:
                os.write(self.writer, b"of before\n")
        os.set_blocking(self.writer, True)

    def close_reader(self) -> None:
        os.close(self.reader)
        self.reader = -1

    def close(self) -> None:
        for each in (self.reader, self.writer):
            if each >= 0:
                os.close(each)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    # The writer's thread may still hold the other end.
    if made.reader >= 0:
        os.close(made.reader)


def test_lines_come_out_in_order_whoever_writes(pipe: Pipe, rng: Random) -> None:
    lines = LineWriter(pipe.writer).start()
    count = 5_000

    def write(name: str) -> None:
        for number in range(count):
            lines.write(f"{name} {number} {'x' * rng.randint(0, 50)}\n")

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    received: list[str] = []
    reading = threading.Thread(target=lambda: received.extend(pipe.read_lines("the end")))
    reading.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines.write("the end\n")
    assert lines.drain(10)
    reading.join(10)
    assert lines.dropped == 0
    for name in "abc":
        assert [int(line.split()[1]) for line in received if line[0] == name] == list(range(count))


def test_nobody_reads(pipe: Pipe) -> None:
    pipe.fill()
    lines = LineWriter(pipe.writer, max_bytes=50_000).start()
    began_s = time.monotonic()
    for number in range(20_000):
        lines.write(f"line {number} {'x' * 30}\n")
    assert not lines.drain(0.2)
    assert time.monotonic() - began_s < 10
    assert lines.dropped > 10_000
    # Once somebody reads, the accepted lines come out in order, and a count takes the place of the dropped ones.
    received: list[str] = []
    reading = threading.Thread(target=lambda: received.extend(pipe.read_lines("news")))
    reading.start()
    assert lines.drain(10)
    lines.write("news\n")
    reading.join(10)
    numbers = [int(line.split()[1]) for line in received if line.startswith("line")]
    told = [json.loads(line) for line in received if "log_lines_dropped" in line]
    assert numbers == sorted(set(numbers))
    assert sum(each["lines"] for each in told) == lines.dropped == 20_000 - len(numbers)
    assert {each["level"] for each in told} == {"warning"}
    assert received[-1] == "news"


def test_the_reader_is_gone(pipe: Pipe) -> None:
    lines = LineWriter(pipe.writer).start()
    pipe.close_reader()
    lines.write("one\n")
    assert lines.drain(10)
    assert lines.dropped == 1


def test_a_descriptor_that_does_not_wait(pipe: Pipe) -> None:
    os.set_blocking(pipe.writer, False)
    lines = LineWriter(pipe.writer).start()
    for number in range(10_000):
        lines.write(f"{number} {'x' * 100}\n")
    lines.write("the end\n")
    assert len(pipe.read_lines("the end")) == 10_001
    assert lines.dropped == 0


def test_what_cannot_be_encoded_does_not_end_the_log(pipe: Pipe) -> None:
    lines = LineWriter(pipe.writer).start()
    lines.write("half a character: \ud83d\n")
    assert pipe.read_lines("half") == ["half a character: \\ud83d"]

"""``python -m snapshots inspect FILE``: show the value of one record of a state, snapshots or backfill topic.

It reads a file or standard input and knows nothing of Kafka. Exit code 1: the value is damaged or of a newer router.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from index.errors import ConfigError, FormatError
from snapshots.envelope import MAX_BODY_BYTES
from snapshots.libraries import check_libraries
from snapshots.show import show

# More than any stored value, so that one that is too long still differs from one that is not.
_MAX_BYTES = 2 * MAX_BODY_BYTES
_DAMAGED = 1
_USAGE = 2
_EXAMPLE = """\
example, with the record offset that a manifest names:
  kcat -C -b localhost:9092 -t orders.delay.delay-snapshots -p 0 -o 9000 -c 1 -f %s | python -m snapshots inspect -
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m snapshots",
        description="Stored state, shown to a person.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    inspect = commands.add_parser(
        "inspect",
        help="show progress, rules, a manifest, a segment, or a staged bucket",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inspect.add_argument("file", metavar="FILE", help="the value of one record; - for standard input")
    inspect.add_argument(
        "--entries", action="store_true", help="also each entry of a segment, or segment of a manifest"
    )
    chosen = parser.parse_args(arguments)
    try:
        check_libraries()
        stored = _read(chosen.file)
    except (OSError, ConfigError) as error:
        print(f"error: {error}", file=sys.stderr)
        return _USAGE
    try:
        for line in show(stored, entries=chosen.entries):
            print(line)
        sys.stdout.flush()
    except FormatError as error:
        print(f"error: {chosen.file}: {error}", file=sys.stderr)
        return _DAMAGED
    except BrokenPipeError:
        # The reader has seen enough; without this the interpreter complains once more while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _read(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read(_MAX_BYTES)
    with Path(name).open("rb") as file:
        return file.read(_MAX_BYTES)


if __name__ == "__main__":
    sys.exit(main())

"""Replays one run: ``python -m tests.simulation SEED [ROUTER]``; ``Lanes`` is the right router in lanes."""

import sys

from tests.simulation.plays import ROUTERS
from tests.simulation.violation import Violation


def main(arguments: list[str]) -> int:
    """Print the events of the run and the verdict. Return 1 if a guarantee was broken."""
    if not arguments or not arguments[0].isdecimal() or len(arguments) > 2 or not set(arguments[1:]) <= set(ROUTERS):
        sys.stderr.write(f"usage: python -m tests.simulation SEED [{'|'.join(ROUTERS)}]\n")
        return 2
    run = ROUTERS[arguments[1] if len(arguments) == 2 else "Router"](int(arguments[0]))
    try:
        run.play()
        verdict = "held"
    except Violation as violation:
        verdict = f"BROKEN: {violation}"
    sys.stdout.write("\n".join([*run.trace, f"seed {arguments[0]}: {verdict}", ""]))
    return int(verdict != "held")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

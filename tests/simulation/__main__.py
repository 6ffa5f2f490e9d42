"""Replays one run: ``python -m tests.simulation SEED [WRONG_ROUTER]``."""

import sys

from tests.simulation import wrong
from tests.simulation.checker import Violation
from tests.simulation.replacing import Wrong
from tests.simulation.run import Run


def main(arguments: list[str]) -> int:
    """Print the events of the run and the verdict. Return 1 if a guarantee was broken."""
    routers: dict[str, type[Wrong] | None] = {"Router": None, **{each.__name__: each for each in wrong.ALL}}
    if not arguments or not arguments[0].isdecimal() or len(arguments) > 2 or not set(arguments[1:]) <= set(routers):
        sys.stderr.write(f"usage: python -m tests.simulation SEED [{'|'.join(routers)}]\n")
        return 2
    run = Run(int(arguments[0]), routers[arguments[1] if len(arguments) == 2 else "Router"])
    try:
        run.play()
        verdict = "held"
    except Violation as violation:
        verdict = f"BROKEN: {violation}"
    sys.stdout.write("\n".join([*run.trace, f"seed {arguments[0]}: {verdict}", ""]))
    return int(verdict != "held")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

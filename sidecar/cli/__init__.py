"""The command ``delay-router``.

May import: every room; ``app`` and ``demo`` are loaded when they are asked for. Begin with :mod:`sidecar.cli.program`,
the list of commands; a module for each group of them lies beside it.
"""

from sidecar.cli.program import main

__all__ = ["main"]

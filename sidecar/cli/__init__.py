"""The command ``delay-router``.

Begin with :mod:`sidecar.cli.program`, the list of commands; a module for each group of commands lies beside it.
"""

from sidecar.cli.program import main

__all__ = ["main"]

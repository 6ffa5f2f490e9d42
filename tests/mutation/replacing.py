"""A plugin of pytest that imports a mutant in place of one module: ``MUTANT_MODULE`` from the file ``MUTANT_FILE``."""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType


class MutantFinder(importlib.abc.MetaPathFinder):
    """Finds one module in another file."""

    def __init__(self, module: str, path: str) -> None:
        self._module = module
        self._path = path

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the mutant for its module, and nothing for every other module."""
        del path, target
        return importlib.util.spec_from_file_location(fullname, self._path) if fullname == self._module else None


sys.meta_path.insert(0, MutantFinder(os.environ["MUTANT_MODULE"], os.environ["MUTANT_FILE"]))

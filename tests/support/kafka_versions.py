"""The older versions of Kafka that ``make test-versions`` runs on, and its tests, as the Makefile lists them."""

import re

from tests.support.paths import ROOT


def older() -> list[str]:
    """Return the versions, the oldest first."""
    return _listed(r"VERSIONS \?= (.+)").split()


def promises() -> list[str]:
    """Return the names of the files with the tests."""
    return _listed(r"VERSION_TESTS = tests/integration/test_\{(.+)\}\.py").split(",")


def _listed(line: str) -> str:
    (found,) = re.findall(rf"^{line}$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return str(found)

"""Fetches Connect, Streams, Debezium and Spring from Maven, and compiles the recipes with them."""

from pathlib import Path
from typing import Final

from tests.support import java_programs

HERE: Final = Path(__file__).parent


def compiled(into: Path) -> str:
    """Compile the programs of the recipes, and return the class path. Raise KafkaUnavailable if Maven cannot fetch."""
    jars = java_programs.libraries("recipes", HERE / "pom.xml")
    return java_programs.compiled(sorted(HERE.glob("*.java")), jars, into)

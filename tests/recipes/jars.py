"""Connect, Streams, Debezium and Spring from Maven, kept beside Kafka's jars, and the recipes compiled with them."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from sidecar.local_kafka import maven
from sidecar.local_kafka.errors import KafkaUnavailable

HERE: Final = Path(__file__).parent
_POM: Final = HERE / "pom.xml"
_FETCH_S: Final = 600


def libraries() -> Path:
    """The folder of their jars; KafkaUnavailable when Maven cannot fetch them."""
    target = maven.cache_dir().with_name(f"recipes-{maven.digest(_POM.read_bytes())}")
    with maven.locked(maven.lock_file(target)):
        if not target.is_dir():
            _fetch(target)
    return target


def compiled(into: Path) -> str:
    """A class path with the recipes' programs, compiled."""
    javac = shutil.which("javac", path=str(Path(maven.java().path).resolve().parent)) or shutil.which("javac")
    if javac is None:
        raise KafkaUnavailable("the Java that was found is a JRE: it has no compiler")
    sources = [str(each) for each in sorted(HERE.glob("*.java"))]
    call = [javac, "-Xlint:all,-processing", "-Werror", "-cp", f"{libraries()}/*", "-d", str(into), *sources]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return f"{libraries()}/*:{into}"


def _fetch(target: Path) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise KafkaUnavailable("Maven is missing")
    partial = target.with_name(f".{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    call = [mvn, "--batch-mode", "--quiet", "--file", str(_POM), "dependency:copy-dependencies"]
    call += ["-DincludeScope=runtime", f"-DoutputDirectory={partial}"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=_FETCH_S, check=False)
    if done.returncode != 0:
        raise KafkaUnavailable(f"Maven could not fetch what recipes are run with: {done.stdout.strip()[:300]}")
    partial.rename(target)

"""Java programs of the tests: their jars from Maven, kept beside Kafka's, and the compiler."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from sidecar.dev.local_kafka import maven
from sidecar.dev.local_kafka.errors import KafkaUnavailable

_FETCH_S: Final = 600


@contextmanager
def or_skip(program: str) -> Iterator[None]:
    """Skip the test if the block finds that Java, Maven or a jar is missing; with CI=true it is an error."""
    try:
        yield
    except KafkaUnavailable as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"{program} cannot be had: {missing}")


def libraries(name: str, pom: Path, *options: str) -> Path:
    """Return the folder of the jars that a pom names; KafkaUnavailable when Maven cannot fetch them.

    Each content of the pom, with each list of ``options`` for Maven, is fetched once.
    """
    content = pom.read_bytes() + "".join(options).encode()
    target = maven.cache_dir().with_name(f"{name}-{maven.digest(content)}")
    with maven.locked(maven.lock_file(target)):
        if not target.is_dir():
            _fetch(target, pom, options)
    return target


def compiled(sources: Sequence[Path], jars: Path, into: Path) -> str:
    """Compile sources against a folder of jars, and return the class path; KafkaUnavailable without a compiler."""
    javac = shutil.which("javac", path=str(Path(maven.java().path).resolve().parent)) or shutil.which("javac")
    if javac is None:
        raise KafkaUnavailable("the Java that was found is a JRE: it has no compiler")
    call = [javac, "-Xlint:all,-processing", "-Werror", "-cp", f"{jars}/*", "-d", str(into), *map(str, sources)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return f"{jars}/*:{into}"


def _fetch(target: Path, pom: Path, options: Sequence[str]) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise KafkaUnavailable("Maven is missing")
    partial = target.with_name(f".{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    call = [mvn, "--batch-mode", "--quiet", "--file", str(pom), "dependency:copy-dependencies", *options]
    call += ["-DincludeScope=runtime", f"-DoutputDirectory={partial}"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=_FETCH_S, check=False)
    if done.returncode != 0:
        raise KafkaUnavailable(f"Maven could not fetch the jars of {pom}: {done.stdout.strip()[:300]}")
    partial.rename(target)

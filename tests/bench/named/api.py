"""The admin API of a router under test, with a token that may look."""

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from sidecar.demo.router import free_port
from tests.bench.results import BenchmarkFailed


@dataclass(frozen=True, slots=True)
class Api:
    """Where it listens, and what opens it."""

    listen: str
    token: str
    tokens: Path

    @property
    def settings(self) -> dict[str, object]:
        """For the router's configuration."""
        return {"listen": self.listen, "token_file": str(self.tokens)}

    def require_found(self, asked: dict[str, Any]) -> None:
        """BenchmarkFailed unless everything that was asked of it has been found."""
        if set(asked["statuses"]) != {str(int(HTTPStatus.OK))}:
            raise BenchmarkFailed(f"the admin API answered {asked['statuses']}, at first: {asked['first_wrong']}")


@contextmanager
def api() -> Iterator[Api]:
    """Until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="delay-router-bench-") as directory:
        token, tokens = secrets.token_urlsafe(48), Path(directory) / "tokens"
        tokens.touch(mode=0o600)
        tokens.write_text(f"read {token}\n")
        yield Api(f"127.0.0.1:{free_port()}", token, tokens)

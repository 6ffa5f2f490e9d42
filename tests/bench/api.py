"""Provides the admin API of a router under test, with a token for it."""

import json
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from sidecar.dev.local_kafka import free_port
from tests.bench.results import BenchmarkFailed

TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Api:
    """The address of the API, and a token for it."""

    listen: str
    token: str
    tokens: Path

    @property
    def settings(self) -> dict[str, object]:
        """The settings for the router's configuration."""
        return {"listen": self.listen, "token_file": str(self.tokens)}

    def find(self, path: str) -> int:
        """Request a schedule, all pages, and return their number. Raise BenchmarkFailed unless exactly one is found."""
        page = self._get(path)
        schedules, pages = list(page["schedules"]), 1
        while page["next_from"] is not None:
            page = self._get(f"{path}&from={page['next_from']}")
            schedules += page["schedules"]
            pages += 1
        if len(schedules) != 1:
            raise BenchmarkFailed(f"{path}: {len(schedules)} schedules were found")
        return pages

    def _get(self, path: str) -> dict[str, Any]:
        connection = HTTPConnection(self.listen, timeout=TIMEOUT_S)
        connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        if answer.status != HTTPStatus.OK:
            raise BenchmarkFailed(f"{path}: the admin API answered {answer.status}: {text}")
        page: dict[str, Any] = json.loads(text)
        return page

    def require_found(self, asked: dict[str, Any]) -> None:
        """Raise BenchmarkFailed unless every request found its schedule."""
        if set(asked["statuses"]) != {str(int(HTTPStatus.OK))}:
            raise BenchmarkFailed(f"the admin API answered {asked['statuses']}, at first: {asked['first_wrong']}")


@contextmanager
def api(role: str = "read") -> Iterator[Api]:
    """Provide the API settings until the end of the block, with a token of this role."""
    with tempfile.TemporaryDirectory(prefix="delay-router-bench-") as directory:
        token, tokens = secrets.token_urlsafe(48), Path(directory) / "tokens"
        tokens.touch(mode=0o600)
        tokens.write_text(f"{role} {token}\n")
        yield Api(f"127.0.0.1:{free_port()}", token, tokens)

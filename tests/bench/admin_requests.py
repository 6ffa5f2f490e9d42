"""Sends requests to the admin API at a steady rate, in a separate process, over a few connections that stay open."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any, Final

from tests.bench import child, workload

CONNECTIONS: Final = 4
TIMEOUT_S: Final = 10.0

Request = tuple[str, str, dict[str, Any] | None]


class Asker:
    """One connection; it reconnects if the server has closed it."""

    def __init__(self, listen: str, token: str) -> None:
        self._listen = listen
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection = HTTPConnection(listen, timeout=TIMEOUT_S)
        self.statuses: Counter[int] = Counter()
        self.taken_ms: list[int] = []
        self.first_wrong = ""

    def ask(self, request: Request) -> str:
        """Send a request and return the answer; repeat it if the server has closed the connection meanwhile."""
        began_s = time.monotonic()
        try:
            status, text = self._once(request)
        except (HTTPException, ConnectionError):
            self._connection.close()
            try:
                status, text = self._once(request)
            except (HTTPException, OSError) as error:
                status, text = 0, repr(error)
        except OSError as error:
            self._connection.close()
            status, text = 0, repr(error)
        self.statuses[status] += 1
        self.taken_ms.append(round((time.monotonic() - began_s) * 1_000))
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES and not self.first_wrong:
            self.first_wrong = f"{request[0]} {request[1]}: {status} {text[:500]}"
        return text

    def _once(self, request: Request) -> tuple[int, str]:
        method, path, body = request
        self._connection.request(method, path, None if body is None else json.dumps(body), self._headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read().decode()


def load(
    listen: str, token: str, requests: Sequence[Request], rate_per_s: int, windows: Sequence[tuple[int, int]]
) -> None:
    """Send the ``requests`` in turn at ``rate_per_s`` within each window, and answer with their results."""
    askers = [Asker(listen, token) for _ in range(CONNECTIONS)]

    def ask_share(number: int) -> None:
        for begin_ms, end_ms in windows:
            for turn in range(number, (end_ms + 1 - begin_ms) * rate_per_s // 1_000, CONNECTIONS):
                workload.sleep_until(begin_ms + turn * 1_000 // rate_per_s)
                if workload.now_ms() > end_ms:
                    break
                askers[number].ask(requests[turn % len(requests)])

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(ask_share, range(CONNECTIONS)))
    child.answer(
        statuses=dict(sum((asker.statuses for asker in askers), Counter())),
        taken_ms=sorted(each for asker in askers for each in asker.taken_ms),
        first_wrong=next((asker.first_wrong for asker in askers if asker.first_wrong), ""),
    )


if __name__ == "__main__":
    load(**child.arguments())

"""Runs one client of the admin API that sends as many requests as it may, path after path, page after page."""

import json
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Final

from tests.bench import child, workload
from tests.bench.admin_requests import Asker

MOST_PER_S: Final = 150
"""A caller has 200 requests a second."""


def ask(listen: str, token: str, paths: Sequence[str], windows: Sequence[tuple[int, int]]) -> None:
    """Request each of ``paths`` in turn, with all its pages, within each window; answer with the results."""
    asker, pages = Asker(listen, token), _Pages(paths)
    shown = ended = 0
    for begin_ms, end_ms in windows:
        workload.sleep_until(begin_ms)
        while (began_ms := workload.now_ms()) < end_ms:
            page = json.loads(asker.ask(("GET", pages.path, None)))
            shown += len(page.get("schedules", ()))
            ended += page.get("next_from") is None
            pages.go_on(page.get("next_from"))
            workload.sleep_until(began_ms + 1_000 // MOST_PER_S)
    child.answer(
        statuses=dict(asker.statuses),
        taken_ms=sorted(asker.taken_ms),
        first_wrong=asker.first_wrong,
        shown=shown,
        ended=ended,
    )


class _Pages:
    """The next page to request."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths: Iterator[str] = cycle(paths)
        self._begun = self.path = next(self._paths)

    def go_on(self, next_from: str | None) -> None:
        """Move to the page after this one, or to the next path if it was the last (None)."""
        if next_from is None:
            self._begun = self.path = next(self._paths)
        else:
            self.path = f"{self._begun}&from={next_from}"


if __name__ == "__main__":
    ask(**child.arguments())

"""One client of the admin API that asks for all it may, as a process of its own: path after path, page after page."""

import json
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Final

from tests.bench import child, workload
from tests.bench.admin_requests import Asker

MOST_PER_S: Final = 150
"""A caller has 200 requests a second."""


def ask(listen: str, token: str, paths: Sequence[str], windows: Sequence[tuple[int, int]]) -> None:
    """Ask for each of ``paths`` in turn, all pages of it, within each window; answer with what came back."""
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
    """Which page is next."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths: Iterator[str] = cycle(paths)
        self._begun = self.path = next(self._paths)

    def go_on(self, next_from: str | None) -> None:
        """The page that was asked for says where the next one begins; None: it was the last."""
        if next_from is None:
            self._begun = self.path = next(self._paths)
        else:
            self.path = f"{self._begun}&from={next_from}"


if __name__ == "__main__":
    ask(**child.arguments())

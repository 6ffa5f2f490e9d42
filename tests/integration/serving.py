"""Opens most tests: a delay topic with a target, and a router that serves it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Stage


class Served(NamedTuple):
    """A router and the topics that it serves."""

    router: RouterProcess
    delay: str
    out: str


@contextmanager
def serving(stage: Stage, **options: Any) -> Iterator[Served]:
    """Start a router on a new delay topic with these configuration ``options``; kill it in the end."""
    out = stage.target()
    delay = stage.delay(default_target=out, **options)
    with stage.router() as router:
        router.start_and_wait()
        yield Served(router, delay, out)

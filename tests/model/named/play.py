"""Plays runs of the model: ``python -m tests.model.named.play [SEEDS]`` plays the right router and each wrong one."""

import sys
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from tests.model.named.design import WRONG, ModelRouter
from tests.model.named.history import World
from tests.model.named.judge import Judge

STEPS: Final = 400
SETTLE_ROUNDS: Final = 3_000
SETTLE_TICKS: Final = 50
SEEDS: Final = 300
"""Each wrong router is caught within so many seeds."""

_MOST_SHOWN: Final = 5


def play(seed: int, wrong: str = "") -> list[str]:
    """Play a run, and return its first broken guarantees."""
    world = World(seed)
    router = ModelRouter(world, wrong)
    for step in world.chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=STEPS):
        step(world, router)
    _settle(world, router)
    return [*islice(Judge(world).broken(), _MOST_SHOWN)]


def first_caught(wrong: str, seeds: int = SEEDS) -> int | None:
    """Return the first seed in which a wrong router breaks a guarantee."""
    return next((seed for seed in range(seeds) if play(seed, wrong)), None)


def _produce(world: World, _router: ModelRouter) -> None:
    for _ in range(world.chance.randrange(4)):
        world.produces()


def _consume(world: World, _: ModelRouter) -> None:
    world.consumes()


def _read(world: World, router: ModelRouter) -> None:
    router.read(world.chance.randrange(1, 6))


def _release(world: World, router: ModelRouter) -> None:
    router.release(world.chance.randrange(1, 6))


def _seal(_: World, router: ModelRouter) -> None:
    router.seal()


def _prepare(_: World, router: ModelRouter) -> None:
    router.prepare_merge()


def _install(_: World, router: ModelRouter) -> None:
    router.install_merge()


def _adopt(_: World, router: ModelRouter) -> None:
    router.adopt()


def _crash(_: World, router: ModelRouter) -> None:
    router.take_over()


def _be_away(world: World, router: ModelRouter) -> None:
    """Let producers send while no router is there."""
    for _ in range(world.chance.randrange(1, 8)):
        world.produces()
        world.now += world.chance.randrange(1, 25)
    router.take_over()


def _pass_time(world: World, _: ModelRouter) -> None:
    world.now += world.chance.randrange(1, 15)


_WEIGHTS: Final[dict[Callable[[World, ModelRouter], None], int]] = {
    _produce: 25,
    _consume: 5,
    _read: 30,
    _release: 25,
    _seal: 6,
    _prepare: 5,
    _install: 5,
    _adopt: 3,
    _crash: 3,
    _be_away: 2,
    _pass_time: 4,
}


def _settle(world: World, router: ModelRouter) -> None:
    """Let every pending schedule leave."""
    for _ in range(SETTLE_ROUNDS):
        world.now += SETTLE_TICKS
        world.consumes()
        router.read(len(world.log))
        if router.is_done:
            return
        router.release(len(world.log))


def main(arguments: Sequence[str]) -> None:
    """Print for each router how many of the seeds break a guarantee."""
    seeds = int(arguments[0]) if arguments else SEEDS
    for wrong in ("", *WRONG):
        broken = {seed: found for seed in range(seeds) if (found := play(seed, wrong))}
        first = next(iter(broken.items()), "")
        print(f"{wrong or 'the right router':45} {len(broken):5} of {seeds}  {first}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

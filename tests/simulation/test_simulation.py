"""Many runs of the right router, and the proof that the wrong ones are caught."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from index.progress import Position, Progress
from index.record import Record
from index.rules import Rules
from sidecar import failpoints
from snapshots.state import PROGRESS_KEY, RULES_KEY, encode_progress
from tests.simulation import mutants, wrong
from tests.simulation.__main__ import main
from tests.simulation.checker import Checker, Violation
from tests.simulation.host import TOPIC_ID
from tests.simulation.replacing import Wrong
from tests.simulation.run import Run
from tests.simulation.world import REJECTED, START_MS, Left, Produced, Transaction

SEEDS = 250
OF_WORKERS = {"recovery.fenced", "recovery.replayed"}
"""Places of a worker's failpoints, whose loop is not played."""

FRESH_SEEDS = 30


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_guarantee_holds(seed: int) -> None:
    print(f"replay: python -m tests.simulation {seed}")
    Run(seed).play()


def test_every_guarantee_holds_for_fresh_seeds(rng: random.Random) -> None:
    for seed in rng.sample(range(SEEDS, 2**32), FRESH_SEEDS):
        print(f"replay: python -m tests.simulation {seed}")
        Run(seed).play()


@pytest.mark.parametrize("wrong_router", wrong.ALL)
def test_a_wrong_router_is_caught(wrong_router: type[Wrong]) -> None:
    assert any(_breaks(seed, wrong_router) for seed in range(mutants.MOST_SEEDS))


def _breaks(seed: int, router_type: type[Wrong]) -> bool:
    try:
        Run(seed, router_type).play()
    except Violation:
        return True
    return False


def test_every_interruption_happens() -> None:
    runs = [Run(seed) for seed in range(SEEDS)]
    for run in runs:
        run.play()
    told = {event.rpartition("| ")[2] for run in runs for event in run.trace}
    at = ["fence", "index", "plan", "trim of snapshots", "trim of the delay topic"]
    at += [f"commit of {what}" for what in ["a batch", "segments", "a seal", "a merge", "a removal", "rules"]]
    at += ["commit of an adoption", "commit of a withdrawal"]
    at += [place for place in failpoints.PLACES if not place.startswith("heal.") and place not in OF_WORKERS]
    points = {f"CrashedError('{point}')" for point in at}
    assert (points | {"UnknownOutcomeError()", "FencedError()", "OutOfRangeError()"}) - told == set()
    assert "ConnectionLostError('in the simulation')" in told
    lost = {event for event in told if event.startswith("StateLostError")}
    assert all(any(what in event for event in lost) for what in ("buckets", "records that were held", "rules"))
    logged = {event for run in runs for event in run.logged}
    assert {"seal_failed", "merge_failed", "load_failed", "segment_damaged", "segment_made_good"} <= logged
    assert {"backfill_adopted", "backfill_discarded", "backfill_refused", "backfill_waits"} <= logged


def test_one_seed_is_one_run() -> None:
    first, second = Run(7), Run(7)
    first.play()
    second.play()
    assert first.trace == second.trace
    assert len(first.trace) > 100


def test_replay_from_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["7"]) == 0
    assert capsys.readouterr().out.endswith("seed 7: held\n")
    seed = next(seed for seed in range(mutants.MOST_SEEDS) if _breaks(seed, wrong.RoundedDown))
    assert main([str(seed), "RoundedDown"]) == 1
    assert f"seed {seed}: BROKEN: " in capsys.readouterr().out
    assert main(["7", "Nobody"]) == 2
    assert "usage:" in capsys.readouterr().err


def test_the_table_of_wrong_routers_is_that_of_the_code() -> None:
    """``make mutants WRITE=--write`` writes it; the numbers of seeds are of that day."""
    kept = list(mutants.kept(mutants.CONTRIBUTING.read_text("utf-8")))
    assert [(name, what) for name, what, _ in kept] == [
        (each.__name__, mutants.what_is_wrong(each)) for each in wrong.ALL
    ]
    assert all(1 <= seeds <= mutants.MOST_SEEDS for _, _, seeds in kept)


def test_the_table_is_written_in_the_place_of_the_former_one() -> None:
    found = [mutants.Caught("Lazy", "Does nothing", 3, "lost: [1]")]
    text = mutants.with_rows(f"# A\n\n{mutants.HEADING}| `Old` | Is old | 9 |\n\n## B\n", mutants.rows(found))
    assert text == f"# A\n\n{mutants.HEADING}| `Lazy` | Does nothing | 3 |\n\n## B\n"
    assert list(mutants.kept(text)) == [("Lazy", "Does nothing", 3)]
    with pytest.raises(ValueError, match=r"CONTRIBUTING\.md has no table"):
        mutants.with_rows("# A\n", "")


def test_routers_of_a_group_believe_different_things() -> None:
    runs = [Run(seed) for seed in range(40)]
    beliefs: Counter[str] = Counter()
    for run in runs:
        run.play()
        beliefs.update(event.partition("| ")[2] for event in run.trace)
    assert beliefs["FencedError()"] > 10
    assert beliefs["waits: the group has given it to another"] > 10
    assert beliefs["given to it by the group"] > 10


RULES = Rules("d", default_target="out", allowed_targets=("a",), max_delay_ms=1_000)
RIGHT = Produced(3, [("h", None)], START_MS, (START_MS + 100) * 1_000, "out", legible=True, key=None, padding=b"x")
RIGHT_RECORD = Record(None, b"3/x", [("h", None)], START_MS)
TOO_LONG = Produced(4, [], START_MS, (START_MS + 1_001) * 1_000, "out", legible=True)


def _leaves(topic: str, offset: int = 3, at_ms: int = 2_000, progress: Progress | None = None) -> Transaction:
    state = [] if progress is None else [(PROGRESS_KEY, encode_progress(progress, TOPIC_ID))]
    return Transaction(START_MS + at_ms, [Left(offset, topic)], [(RULES_KEY, b"not looked at"), *state])


def _written(record: Record) -> Transaction:
    return Transaction(START_MS + 2_000, [Left(3, "out", record)], [])


def _after(cursor: int, watermark: int, sealed_to: int) -> Progress:
    return Progress(cursor, Position(watermark, 3), sealed_to)


@pytest.mark.parametrize(
    ("history", "broken"),
    [
        ([_leaves("out"), _leaves("out")], "3 left twice, to out and to out"),
        ([_leaves("out"), _leaves(REJECTED)], "3 left twice"),
        ([_leaves("a")], "3 went to a, not out"),
        ([_leaves(REJECTED)], "3 rejected, but right by all rules there were"),
        ([_leaves("out", offset=4)], "4 released, but wrong by all rules there were"),
        ([_leaves("out", at_ms=99)], "3 released 1000 us early"),
        ([_leaves("out", progress=_after(5, 100, 6))], "S beyond C"),
        ([_leaves("out", progress=_after(5, 100, 5)), _leaves(REJECTED, 4, progress=_after(4, 100, 4))], "C moved"),
        ([_leaves("out", progress=_after(5, 100, 5)), _leaves(REJECTED, 4, progress=_after(5, 99, 5))], "W moved"),
        ([_leaves("out", progress=_after(5, 100, 5)), _leaves(REJECTED, 4, progress=_after(5, 100, 4))], "S moved"),
        ([_leaves("out")], r"lost: \[4\]"),
        ([_written(RIGHT_RECORD._replace(value=b"3/y"))], "3 altered"),
        ([_written(RIGHT_RECORD._replace(key=b""))], "3 altered"),
        ([_written(RIGHT_RECORD._replace(headers=[("h", b"")]))], "3 altered"),
    ],
)
def test_the_checker_names_what_is_broken(history: Sequence[Transaction], broken: str) -> None:
    with pytest.raises(Violation, match=broken):
        _check([RIGHT, TOO_LONG], history)


def test_the_checker_accepts_what_is_right() -> None:
    history = [_leaves("out", at_ms=100, progress=_after(4, 100, 4)), _leaves(REJECTED, offset=4)]
    _check([RIGHT, TOO_LONG], history)
    history = [_written(RIGHT_RECORD), _leaves(REJECTED, offset=4)]
    _check([RIGHT, TOO_LONG], history)


def test_the_checker_sees_the_wrong_order() -> None:
    sooner = Produced(9, [], START_MS, (START_MS + 50) * 1_000, "out", legible=True)
    history = [Transaction(START_MS + 200, [Left(3, "out"), Left(9, "out")], [])]
    with pytest.raises(Violation, match="not in order"):
        _check([RIGHT, sooner], history)


def _check(produced: Sequence[Produced], history: Sequence[Transaction]) -> None:
    checker = Checker(produced, [RULES], history)
    checker.follow()
    checker.nothing_missing()

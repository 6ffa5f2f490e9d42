"""The counts of a walk."""

from tests.bench.walk import Walk, room_of

WALK = Walk(
    "deliver-at",
    {
        "worker": [
            "index/rules/rules.py:Rules.decide",
            "sidecar/engine/release/gate.py:Gate.hold",
            "sidecar/engine/release/plan.py:Plan",
        ],
        "intake": ["sidecar/clock.py:Clock.now_ms", "index/rules/rules.py:Rules.decide"],
        "page": ["sidecar/http/server.py:idle"],
    },
)


def test_a_walk_without_the_calls_of_an_idle_second() -> None:
    walk = WALK.without({"sidecar/http/server.py:idle"})
    assert walk.calls.keys() == {"worker", "intake"}
    assert len(walk.functions) == 4
    assert walk.rooms == {"index", "sidecar/engine", "sidecar/clock.py"}
    assert walk.moves == 2


def test_the_room_of_a_file_is_its_folder_in_the_router() -> None:
    rooms = map(room_of, ("sidecar/http/api/paths.py", "sidecar/clock.py:now", "snapshots/state/state.py"))
    assert list(rooms) == ["sidecar/http", "sidecar/clock.py", "snapshots"]

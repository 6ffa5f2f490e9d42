"""The direction of dependencies between the rooms, and the size of their modules.

THINK HARD BEFORE CHANGING AN ALLOW-LIST HERE. The lists keep the core free of I/O and time (so that it can be simulated
and replayed), the auditor independent of the router that it judges, and Spark jobs free of the router.
"""

import ast
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.support.imports import Import, imports_of, modules_in
from tests.support.paths import ROOT

_ROOMS = frozenset({"index", "snapshots", "sidecar", "spark_backfill"})
_STDLIB = frozenset(sys.stdlib_module_names)
_MAX_LINES = 400
_LONGER = {
    # Producers copy it, so it has to be one file.
    "sidecar/producing.py": 450,
}

# Values, types and arithmetic; nothing that reads a clock, a file, a socket, the environment or a random
# number.
_PURE_STDLIB = frozenset(
    {
        "abc",
        "array",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "copy",
        "dataclasses",
        "datetime",
        "decimal",
        "difflib",
        "enum",
        "fractions",
        "functools",
        "hashlib",
        "heapq",
        "itertools",
        "json",
        "math",
        "operator",
        "re",
        "string",
        "struct",
        "types",
        "typing",
        "zlib",
    }
)
_RUNTIME = frozenset(
    {
        "click",
        "confluent_kafka",
        "fastapi",
        "google.protobuf",
        "opentelemetry",
        "prometheus_client",
        "pydantic",
        "pydantic_core",
        "pyroaring",
        "rich",
        "sortedcontainers",
        "starlette",
        "structlog",
        "uvicorn",
    }
)


@dataclass(frozen=True, slots=True)
class Rule:
    """The modules that a room may import: prefixes of dotted names, besides the room itself."""

    allowed: frozenset[str]

    def breaches(self, imports: Iterable[Import]) -> list[Import]:
        """Return the imports that no prefix allows."""
        return [found for found in imports if not any(_within(found.module, name) for name in self.allowed)]


def _within(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(f"{prefix}.")


_RULES = {
    # cronsim is arithmetic on a given local time. The rules of time zones are elsewhere: zoneinfo reads files, so the
    # router loads them (sidecar/zones.py) and passes them in as a tzinfo.
    "index": Rule(_PURE_STDLIB | {"index", "sortedcontainers", "pyroaring", "cronsim"}),
    "snapshots": Rule(_PURE_STDLIB | {"snapshots", "index", "google.protobuf", "pyroaring"}),
    # The last three are extras: imported only where a Docker engine answers, or router.msk_region is set.
    "sidecar": Rule(
        _STDLIB | _RUNTIME | {"sidecar", "snapshots", "index", "testcontainers", "aws_msk_iam_sasl_signer", "botocore"}
    ),
    "spark_backfill": Rule(
        _STDLIB
        | {
            "spark_backfill",
            "snapshots",
            "index",
            "py4j",
            "pyspark",
            "numpy",
            "pyarrow",
            "pyroaring",
            "confluent_kafka",
            "click",
            "rich",
        }
    ),
}

_EVERYBODY = frozenset(
    {"__version__", "clock", "commit", "durations", "engine", "extras", "failpoints", "lateness", "logs", "metrics"},
)
"""The modules that each room of the router may import, besides ``index`` and ``snapshots``.

``engine`` stands for the modules at its root: the ports, the limits and the context of a partition.
"""

_KAFKA = frozenset({"kafka.client", "kafka.reading", "kafka.writing"})

_INNER: dict[str, frozenset[str]] = {
    "config": frozenset(),
    "logs": frozenset(),
    # What decides and orders for one partition. The simulation runs exactly these rooms.
    "engine.payload": frozenset(),
    "engine": frozenset({"engine.payload", "config"}),
    "engine.intake": frozenset({"engine.payload"}),
    "engine.release": frozenset({"engine.payload"}),
    "engine.buckets": frozenset({"engine.release", "engine.payload", "config"}),
    "engine.ownership": frozenset({"engine.buckets", "engine.release", "engine.intake", "engine.payload", "config"}),
    # All contact with the client.
    "kafka.client": frozenset({"kernel", "config"}),
    "kernel": frozenset(),
    "kafka.reading": frozenset({"engine.intake", "engine.payload", "kernel", "kafka.client", "config"}),
    "kafka.writing": frozenset({"engine.release", "engine.payload", "kernel", "kafka.client", "config"}),
    "kafka.doubts": _KAFKA | {"engine.release", "config"},
    # The cluster, and the settings that change while routers run.
    "cluster.topics": _KAFKA | {"kafka.doubts", "engine.ownership", "config"},
    "cluster.rights": frozenset({"kafka.client", "config"}),
    "policies": _KAFKA | {"engine.ownership", "engine.release", "config"},
    "tracing": frozenset({"engine.payload", "config"}),
    # The process: threads, and the ports of the engine.
    "process.host": _KAFKA
    | {"engine.ownership", "engine.buckets", "engine.release", "engine.intake", "engine.payload"}
    | {"kafka.doubts", "cluster.topics", "policies", "kernel", "zones", "config"},
    "process": frozenset({"process.host", "engine.ownership", "cluster.topics", "kafka.client", "config"}),
    # The operator's desk, and the ways to it.
    "operations.finding": _KAFKA | {"config"},
    "operations.controls": _KAFKA | {"config"},
    "operations.status": _KAFKA | {"operations.finding", "engine.ownership", "policies", "config"},
    "operations.watching": frozenset({"operations.status", "engine.ownership"}),
    "operations.rejected": _KAFKA | {"engine.release", "config"},
    "operations.verifying": _KAFKA | {"cluster.topics", "config"},
    "operations.sizing": frozenset({"engine.ownership", "engine.release", "cluster.topics", "kafka.client", "config"}),
    "operations.asking": frozenset({"operations.rejected", "operations.finding", "operations.status"})
    | {"operations.controls", "operations.sizing"}
    | {"policies", "cluster.topics", "kafka.client", "config"},
    "operations": frozenset({"operations.controls", "operations.rejected", "operations.finding", "operations.status"})
    | {"operations.watching", "policies", "cluster.topics", "kafka.client", "kafka.writing", "zones", "config"},
    "http": frozenset({"config"}),
    "http.page": frozenset({"http"}),
    "http.api": frozenset({"operations", "operations.controls", "operations.rejected", "operations.finding"})
    | {"operations.status", "operations.watching", "policies", "http", "http.page"}
    | {"process", "kafka.client", "kafka.writing", "config"},
    "dev.audit": frozenset(),
    "dev.local_kafka": frozenset(),
    "dev.demo": frozenset({"dev.audit", "dev.local_kafka"}),
    "cli": frozenset(
        {"operations", "operations.asking", "operations.rejected", "operations.controls", "operations.finding"}
    )
    | {
        "operations.status",
        "operations.sizing",
        "operations.verifying",
        "app",
        "dev.demo",
        "policies",
        "engine.ownership",
        "engine.release",
        "cluster.topics",
        "cluster.rights",
    }
    | {"kafka.doubts", "kafka.client", "kafka.writing", "zones", "config"},
}
"""The rooms of the router that each room may import, in the order of their floors.

Four protocols with one implementation invert an import that this table forbids: ``Health``, ``AssignmentListener``,
``QueryAnswer`` and ``Turns``.
"""

_FOLDERS = frozenset({"engine", "kafka", "cluster", "operations", "dev"})
"""The folders of rooms; ``engine`` and ``operations`` also hold modules, so they are rooms as well."""

_CONNECTS = "app"
"""The one module that makes and connects everything, so it may import any room but the command line's."""

_ENGINE_ALLOWED = Rule(
    _PURE_STDLIB
    | {"contextlib", "concurrent.futures.Future", "index", "snapshots", "pyroaring", "structlog"}
    | {"sidecar.engine", "sidecar.clock.Clock", "sidecar.config", "sidecar.durations", "sidecar.failpoints"}
    | {"sidecar.lateness", "sidecar.logs", "sidecar.metrics"}
)
"""No client, thread, socket or clock; and no own module that has one, but for metrics, logs and failpoints.

A failpoint does nothing unless the environment of a test has armed it, and the simulation replaces it by a death that
it can repeat.
"""

_CORE: dict[str, dict[str, frozenset[str]]] = {
    "index": {
        "protocol": frozenset(),
        "rules": frozenset({"protocol"}),
        "pending": frozenset({"protocol"}),
        "named": frozenset({"pending", "protocol"}),
        "buckets": frozenset({"named", "pending", "protocol"}),
        "partition": frozenset({"buckets", "named", "pending", "protocol"}),
    },
    "snapshots": {
        "segments": frozenset({"proto"}),
        "state": frozenset({"segments", "proto"}),
    },
}
"""The rooms of the core that each room may import, besides the modules at the root of its package."""

_CORE_ROOTS = frozenset({"errors", "envelope", "libraries", "offsets"})

_MAX_FILES = 14
"""Most files of a room, its ``__init__`` included."""

_MOST_ARROWS = 100
"""Most pairs of a folder of the router, or a module beside the folders, and another one that it imports."""

_MOST_FLOORS = 11

_JOBS: dict[str, frozenset[str]] = {
    "audit": frozenset(),
    "schedule": frozenset(),
    "buckets": frozenset(),
    "build": frozenset({"buckets"}),
    # An export protects the records it reads by intents, as a build protects the buckets it writes.
    "export": frozenset({"build", "buckets"}),
}
"""The rooms of the Spark jobs that each room may import, besides the shared modules."""

_SHARED_BY_JOBS = frozenset(
    {"cli_common", "cluster", "errors", "formats", "jars", "kernel", "session", "settings", "source", "stages"}
)
"""Modules at the root of the Spark jobs; they import no room."""

# Commands for a person: they read a file or standard input, and only hand bytes to their room.
_COMMANDS = {"snapshots/__main__.py": frozenset({"argparse", "os", "pathlib", "sys"})}

# The auditor judges the work of the router, so it may not share a line with it.
_AUDITOR = Rule(_STDLIB | {"confluent_kafka", "sidecar.dev.audit"})


def _modules() -> list[tuple[Path, str]]:
    return [module for room in sorted(_ROOMS) for module in modules_in(ROOT, room)]


def _name(module: tuple[Path, str]) -> str:
    return str(module[0].relative_to(ROOT))


@pytest.mark.parametrize("module", _modules(), ids=_name)
def test_a_room_imports_only_what_it_may(module: tuple[Path, str]) -> None:
    path, package = module
    room = package.partition(".")[0]
    rule = Rule(_RULES[room].allowed | _COMMANDS.get(_name(module), frozenset()))
    breaches = rule.breaches(imports_of(path.read_text(encoding="utf-8"), package))
    assert breaches == [], f"{room} may not import these"


def _inner_room(module: tuple[Path, str]) -> str:
    """Return the folder that a module lies in, as ``http.api``, or the module itself at the root of its package."""
    path, package = module
    return package.partition(".")[2] or path.stem


def _inner_rooms(top: str = "sidecar") -> dict[str, list[tuple[Path, str]]]:
    rooms: dict[str, list[tuple[Path, str]]] = {}
    for module in modules_in(ROOT, top):
        rooms.setdefault(_inner_room(module), []).append(module)
    return rooms


def _assert_imports_only(top: str, room: str, allowed: frozenset[str]) -> None:
    rooms = _inner_rooms(top)
    for path, package in rooms[room]:
        inner = [each for each in imports_of(path.read_text(encoding="utf-8"), package) if each.top == top]
        breaches = [
            each for each in inner if each.module != top and _imported_room(each.module, rooms) not in allowed | {room}
        ]
        assert breaches == [], f"{path.relative_to(ROOT)} may not import these"


def _imported_room(module: str, rooms: Iterable[str]) -> str:
    """Return the innermost room that a module of the same package lies in."""
    name = module.partition(".")[2]
    return max((room for room in rooms if _within(name, room)), key=len, default=name)


@pytest.mark.parametrize("room", _INNER)
def test_a_room_of_the_router_imports_only_the_rooms_it_may(room: str) -> None:
    _assert_imports_only("sidecar", room, _INNER[room] | _EVERYBODY)


@pytest.mark.parametrize("room", _JOBS)
def test_a_room_of_the_jobs_imports_only_the_rooms_it_may(room: str) -> None:
    _assert_imports_only("spark_backfill", room, _JOBS[room] | _SHARED_BY_JOBS)


@pytest.mark.parametrize(("top", "room"), [(top, room) for top, rooms in _CORE.items() for room in rooms])
def test_a_room_of_the_core_imports_only_the_rooms_it_may(top: str, room: str) -> None:
    _assert_imports_only(top, room, _CORE[top][room] | _CORE_ROOTS)


@pytest.mark.parametrize("module", sorted(_SHARED_BY_JOBS))
def test_what_jobs_share_imports_none_of_their_rooms(module: str) -> None:
    _assert_imports_only("spark_backfill", module, _SHARED_BY_JOBS)


@pytest.mark.parametrize("module", list(modules_in(ROOT, "sidecar/engine")), ids=_name)
def test_the_engine_has_no_client_no_thread_and_no_clock(module: tuple[Path, str]) -> None:
    path, _ = module
    package = ".".join(path.relative_to(ROOT).parent.parts)
    breaches = {found.module for found in _ENGINE_ALLOWED.breaches(imports_of(path.read_text("utf-8"), package))}
    assert breaches - {"sidecar"} == set(), f"{path.relative_to(ROOT)} is part of the engine"


def test_the_rooms_of_the_router_import_each_other_in_no_circle() -> None:
    # Raises CycleError, which names the circle. The ports at the root of the engine are everybody's.
    order = TopologicalSorter({room: allowed - {"engine"} for room, allowed in _INNER.items()})
    assert set(_INNER) <= set(order.static_order())


def test_the_folders_of_the_router_import_each_other_in_no_circle() -> None:
    folders: dict[str, set[str]] = {}
    for room, allowed in _INNER.items():
        folder = room.partition(".")[0]
        folders.setdefault(folder, set()).update({each.partition(".")[0] for each in allowed} - {folder})
    assert set(folders) <= set(TopologicalSorter(folders).static_order())


def _arrows() -> dict[str, set[str]]:
    """Return for each folder of the router, and each module beside the folders, the others that it imports."""
    rooms, arrows = _inner_rooms(), dict[str, set[str]]()
    for room, modules in rooms.items():
        folder = room.partition(".")[0]
        found = {
            _imported_room(each.module, rooms).partition(".")[0]
            for path, package in modules
            for each in imports_of(path.read_text(encoding="utf-8"), package)
            if each.top == "sidecar" and each.module != "sidecar"
        }
        arrows.setdefault(folder, set()).update(found - {folder})
    return arrows


def _floors(arrows: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """Return the folders by floors, the lowest first; a folder imports only from floors below its own."""
    order, floors = TopologicalSorter(arrows), list[tuple[str, ...]]()
    order.prepare()
    while order.is_active():
        floors.append(order.get_ready())
        order.done(*floors[-1])
    return floors


def test_the_map_of_the_router_stays_small() -> None:
    arrows = _arrows()
    drawn = "\n".join(f"{folder} ─► {', '.join(sorted(arrows[folder]))}" for folder in arrows)
    assert sum(map(len, arrows.values())) <= _MOST_ARROWS, drawn
    assert len(_floors(arrows)) <= _MOST_FLOORS, drawn


def test_floors_follow_from_the_arrows() -> None:
    assert _floors({"cli": {"engine", "clock"}, "engine": {"clock"}}) == [("clock",), ("engine",), ("cli",)]


def test_every_folder_of_the_jobs_is_a_room() -> None:
    assert set(_inner_rooms("spark_backfill")) == set(_JOBS) | _SHARED_BY_JOBS | {"__init__", "__main__", "cli"}


def test_every_folder_of_the_router_is_a_room() -> None:
    single = {"__init__", "__main__", _CONNECTS, "producing", "zones"} | (_EVERYBODY - {"__version__", "logs"})
    assert set(_inner_rooms()) == set(_INNER) | single | _FOLDERS
    for folder in _FOLDERS - set(_INNER):
        assert [path.name for path, _ in _inner_rooms()[folder]] == ["__init__.py"], (
            f"{folder} holds rooms, not modules"
        )


def test_the_router_has_few_folders_to_open() -> None:
    assert len({room.partition(".")[0] for room in _INNER}) <= 13


@pytest.mark.parametrize(
    ("top", "room"),
    [("sidecar", room) for room in _INNER]
    + [("spark_backfill", room) for room in _JOBS]
    + [(top, room) for top, rooms in _CORE.items() for room in rooms],
)
def test_a_room_is_small_and_says_what_it_is_for(top: str, room: str) -> None:
    modules = _inner_rooms(top)[room]
    assert len(modules) <= _MAX_FILES
    docstring = ast.get_docstring(
        ast.parse(ROOT.joinpath(top, *room.split("."), "__init__.py").read_text(encoding="utf-8"))
    )
    assert docstring is not None
    assert len(docstring) > len(room) + 40


@pytest.mark.parametrize("top", ["index", "snapshots"])
def test_modules_of_the_core_import_each_other_in_no_circle(top: str) -> None:
    names = {f"{package}.{path.stem}": (path, package) for path, package in modules_in(ROOT, top)}
    uses = {
        name: {
            used
            for each in imports_of(path.read_text(encoding="utf-8"), package)
            for used in names
            if _within(each.module, used)
        }
        for name, (path, package) in names.items()
    }
    # Raises CycleError, which names the circle.
    assert len(tuple(TopologicalSorter(uses).static_order())) == len(names)


def test_only_what_connects_everything_is_imported_by_the_command_line_alone() -> None:
    users = {
        _inner_room(module)
        for module in modules_in(ROOT, "sidecar")
        for each in imports_of(module[0].read_text(encoding="utf-8"), module[1])
        if each.module.startswith(f"sidecar.{_CONNECTS}")
    }
    assert users == {"cli"}


def test_the_auditor_shares_no_code_with_what_it_judges() -> None:
    auditor = [module for module in _modules() if _name(module).startswith("sidecar/dev/audit")]
    assert auditor, "the auditor has moved, and nothing guards it any more"
    for path, package in auditor:
        assert _AUDITOR.breaches(imports_of(path.read_text(encoding="utf-8"), package)) == []


@pytest.mark.parametrize("module", _modules(), ids=_name)
def test_a_module_is_short_enough_to_read(module: tuple[Path, str]) -> None:
    most = _LONGER.get(_name(module), _MAX_LINES)
    assert len(module[0].read_text(encoding="utf-8").splitlines()) <= most


_SPELLED_TWICE = {
    # Producers copy sidecar/producing.py, so it imports nothing.
    "KeepKey",
}


def test_a_class_name_is_used_once() -> None:
    places: dict[str, list[str]] = {}
    for module in _modules():
        for node in ast.parse(module[0].read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(_name(module))
    assert {name: where for name, where in places.items() if len(where) > 1}.keys() == _SPELLED_TWICE


def test_every_room_was_looked_at() -> None:
    looked_at = {package.partition(".")[0] for _, package in _modules()}
    assert looked_at == _ROOMS == set(_RULES)


_BAD = """
import time, re
import os.path as p
from . import pending
from ..sidecar import worker
from sidecar.clients import make_producer
from collections.abc import Iterable

def late():
    if TYPE_CHECKING:
        import confluent_kafka
    importlib.import_module("random")
    __import__("logging")
"""


def test_the_walk_sees_every_kind_of_import() -> None:
    breaches = _RULES["index"].breaches(imports_of(_BAD, "index"))
    assert {found.module for found in breaches} == {
        "time",
        "os.path",
        "sidecar.worker",
        "sidecar.clients.make_producer",
        "confluent_kafka",
        "random",
        "logging",
    }
    assert next(found.line for found in breaches if found.module == "os.path") == 3


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("index", "import datetime_extra"),
        ("index", "import snapshots"),
        ("index", "from google.protobuf import message"),
        ("snapshots", "from sidecar import clients"),
        ("snapshots", "import time"),
        ("snapshots", "from google import auth"),
        ("sidecar", "import spark_backfill.audit"),
        ("sidecar", "import pyspark"),
        ("sidecar", "import tests.support.topics"),
        ("sidecar", "import psutil"),
        ("spark_backfill", "from sidecar import config"),
        ("spark_backfill", "from tests.support import topics"),
    ],
)
def test_a_forbidden_import_is_a_breach(room: str, source: str) -> None:
    assert len(_RULES[room].breaches(imports_of(source, room))) == 1


def test_relative_imports_cannot_hide_a_breach() -> None:
    (found,) = imports_of("from ...spark_backfill import audit", "sidecar.demo.table")
    assert found.module == "sidecar.spark_backfill.audit"
    (found,) = imports_of("from ..index import times", "sidecar.demo")
    assert found.module == "sidecar.index.times"
    assert _AUDITOR.breaches(imports_of("from . import clients", "sidecar")) == [Import(1, "sidecar.clients")]

"""The direction of dependencies between the rooms, and the size of their modules.

THINK HARD BEFORE CHANGING AN ALLOW-LIST HERE. The lists keep the core free of I/O and time (so that it can be simulated
and replayed), the auditor independent of the router that it judges, and Spark jobs free of the router.
"""

import ast
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.support.imports import Import, imports_of, modules_in
from tests.support.paths import ROOT

_ROOMS = frozenset({"index", "snapshots", "sidecar", "spark_backfill"})
_STDLIB = frozenset(sys.stdlib_module_names)
_MAX_LINES = 400

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
    # router loads them (sidecar/series/zones.py) and passes them in as a tzinfo.
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
    {
        "__version__",
        "clock",
        "context",
        "durations",
        "failpoints",
        "lateness",
        "limits",
        "logs",
        "metrics",
        "ports",
        "settings",
    }
)
"""The modules that each room of the router may import, besides ``index`` and ``snapshots``."""

_INNER: dict[str, frozenset[str]] = {
    "config": frozenset(),
    "logs": frozenset(),
    "kafka": frozenset({"config"}),
    "kernel": frozenset({"kafka"}),
    "topics": frozenset({"kafka", "config"}),
    "rights": frozenset({"kafka", "config"}),
    "payload": frozenset(),
    "series": frozenset({"payload"}),
    "tracing": frozenset({"payload", "config"}),
    "intake": frozenset({"payload", "kernel", "kafka", "config"}),
    "doubts": frozenset({"payload", "kafka", "config"}),
    "release": frozenset({"doubts", "series", "payload", "kernel", "kafka", "config"}),
    "policies": frozenset({"release", "kafka", "config"}),
    "buckets": frozenset({"release", "intake", "payload", "kafka", "config"}),
    "backfill": frozenset({"release", "intake", "payload", "kafka", "config"}),
    "partition": frozenset(
        {
            "doubts",
            "backfill",
            "buckets",
            "policies",
            "release",
            "series",
            "intake",
            "payload",
            "topics",
            "kernel",
            "tracing",
            "kafka",
            "config",
        }
    ),
    "process": frozenset({"partition", "topics", "kafka", "config"}),
    "finding": frozenset({"intake", "kafka", "config"}),
    "controls": frozenset({"intake", "kafka", "config"}),
    "status": frozenset({"finding", "partition", "policies", "intake", "kafka", "config"}),
    "rejected": frozenset({"release", "intake", "kafka", "config"}),
    "http": frozenset({"config"}),
    "http.page": frozenset({"http"}),
    "http.api": frozenset(
        {"http", "http.page", "controls", "rejected", "finding", "status", "policies", "process", "kafka", "config"}
    ),
    "asking": frozenset({"rejected", "finding", "status", "policies", "topics", "kafka", "config"}),
    "cli": frozenset(
        {
            "app",
            "demo",
            "asking",
            "rejected",
            "controls",
            "finding",
            "status",
            "policies",
            "partition",
            "series",
            "topics",
            "doubts",
        }
    )
    | {"rights", "kafka", "config"},
    "audit": frozenset(),
    "local_kafka": frozenset(),
    "demo": frozenset({"audit", "local_kafka"}),
}
"""The rooms of the router that each room may import, in the order of their floors."""

_CONNECTS = "app"
"""The one module that makes and connects everything, so it may import any room but the command line's."""

_ENGINE = frozenset(
    {
        *("context", "lateness", "limits", "ports", "settings"),
        *("payload.ledger", "payload.memory", "payload.packed_run", "payload.packing", "payload.records"),
        *("series.occurring", "doubts.aside", "doubts.watch"),
        *("intake.decided", "intake.deciding", "intake.intake"),
        *("release.expiry", "release.gate", "release.moving", "release.plan", "release.rates", "release.releaser"),
        *("release.screening", "release.shortening", "release.transaction"),
        *("buckets.hidden_end", "buckets.id_pages", "buckets.ids", "buckets.lifecycle", "buckets.loading"),
        *("buckets.merge_reading", "buckets.merging", "buckets.sealing", "buckets.segments", "buckets.single_records"),
        *("buckets.trimming", "buckets.upkeep", "backfill.adopting", "backfill.restored"),
        *("partition.origin", "partition.owned_partition", "partition.ports", "partition.rounds"),
        *("partition.rule_changes", "partition.status", "partition.tail", "partition.takeover"),
    }
)
"""Modules that decide and order for one partition: the simulation runs exactly these."""

_ENGINE_ALLOWED = Rule(
    _PURE_STDLIB
    | {"contextlib", "concurrent.futures.Future", "index", "snapshots", "pyroaring", "structlog"}
    | {f"sidecar.{name}" for name in _ENGINE}
    | {"sidecar.clock.Clock", "sidecar.config", "sidecar.durations", "sidecar.failpoints", "sidecar.logs"}
    | {"sidecar.metrics"}
)
"""No client, thread, socket or clock; and no own module that has one, but for metrics, logs and traces."""

_MAX_FILES = 14
"""Most files of a room, its ``__init__`` included."""

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
_AUDITOR = Rule(_STDLIB | {"confluent_kafka", "sidecar.audit"})


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


@pytest.mark.parametrize("module", sorted(_SHARED_BY_JOBS))
def test_what_jobs_share_imports_none_of_their_rooms(module: str) -> None:
    _assert_imports_only("spark_backfill", module, _SHARED_BY_JOBS)


@pytest.mark.parametrize("name", sorted(_ENGINE))
def test_the_engine_has_no_client_no_thread_and_no_clock(name: str) -> None:
    path = ROOT / "sidecar" / f"{name.replace('.', '/')}.py"
    package = f"sidecar.{name}".rpartition(".")[0]
    breaches = {found.module for found in _ENGINE_ALLOWED.breaches(imports_of(path.read_text("utf-8"), package))}
    breaches.discard("sidecar")
    assert breaches == set(), f"{name} is part of the engine"


def test_every_folder_of_the_jobs_is_a_room() -> None:
    assert set(_inner_rooms("spark_backfill")) == set(_JOBS) | _SHARED_BY_JOBS | {"__init__", "__main__", "cli"}


def test_every_folder_of_the_router_is_a_room() -> None:
    single = {"__init__", "__main__", _CONNECTS, "producing"} | (_EVERYBODY - {"__version__", "logs"})
    assert set(_inner_rooms()) == set(_INNER) | single


@pytest.mark.parametrize(
    ("top", "room"), [("sidecar", room) for room in _INNER] + [("spark_backfill", room) for room in _JOBS]
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
    auditor = [module for module in _modules() if _name(module).startswith("sidecar/audit")]
    assert auditor, "the auditor has moved, and nothing guards it any more"
    for path, package in auditor:
        assert _AUDITOR.breaches(imports_of(path.read_text(encoding="utf-8"), package)) == []


@pytest.mark.parametrize("module", _modules(), ids=_name)
def test_a_module_is_short_enough_to_read(module: tuple[Path, str]) -> None:
    assert len(module[0].read_text(encoding="utf-8").splitlines()) <= _MAX_LINES


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

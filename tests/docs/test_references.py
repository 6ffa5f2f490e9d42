"""Tests that references in documents are valid: configuration keys, paths of the API, documents and sections."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from pydantic import BaseModel

from index.errors import ConfigError
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.listeners import AdminConfig
from sidecar.config.model import Config, HttpConfig, RouterConfig
from sidecar.config.sources import ENV_PREFIX
from sidecar.http.api.application import PREFIX
from sidecar.operations.sizing.capacity import (
    DUE_A_SECOND,
    INCOMING_A_SECOND,
    MOST_PARTITIONS,
    OVERDUE_A_SECOND,
    PENDING_BYTES,
    PROCESS_COMMITS,
    SCATTERED_BYTES,
)
from tests.docs import api_paths, capacity, log_events, reference
from tests.docs.documents import Piece, anchor, blocks, current, documents, headings, links, spans
from tests.helm.exported import catalogue
from tests.support.paths import ROOT

SECTIONS: Final[Mapping[str, type[BaseModel]]] = {
    "router": RouterConfig,
    "http": HttpConfig,
    "admin": AdminConfig,
    "delay_topics": DelayTopicConfig,
}
WITH_CONTENTS: Final = (
    "OPERATIONS.md",
    "RUNBOOK.md",
    "REFERENCE.md",
    "API.md",
    "BENCHMARKS.md",
    "PRODUCERS.md",
    "RECIPES.md",
    "DECISIONS.md",
)
README_LINES: Final = 120
"""A first-time visitor reads this much; the rest is a link away."""


def keys_of(section: str) -> set[str]:
    fields = SECTIONS[section].model_fields
    return {field.alias or name for name, field in fields.items()}


def test_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES


@pytest.mark.parametrize(
    "block", [b for d in current() for b in blocks(d) if b.language == "toml"], ids=lambda b: b.place
)
def test_configurations_are_taken(block: Piece) -> None:
    raw = tomllib.loads(block.text)
    raw.setdefault("kafka", {"bootstrap.servers": "localhost:9092"})
    try:
        Config.model_validate(raw)
    except ConfigError as error:
        pytest.fail(f"{block.place}: {error}")
    # A key in a commented line counts as well.
    section = next(iter(set(raw) - {"kafka", "delay_topics"}), "")
    for key in re.findall(r"^# (\w+) = ", block.text, re.MULTILINE):
        assert key in keys_of(section), block.place


def named_keys() -> Iterator[tuple[str, str, str]]:
    """Yield place, section and key of every key written as `router.tick` or `DELAY_ROUTER__ROUTER__TICK`."""
    for document in current():
        for piece in [*spans(document), *blocks(document)]:
            for section, key in re.findall(rf"{ENV_PREFIX}([A-Z]+)__([A-Z_]+)", piece.text):
                yield piece.place, section.lower(), key.lower()
        for span in spans(document) if document.parent == ROOT else ():  # helm's are about chart values
            found = re.match(r"(router|http|admin)\.([a-z_]+)(?: =|$)", span.text)
            if found:
                yield span.place, found[1], found[2]


@pytest.mark.parametrize(("place", "section", "key"), [*named_keys()])
def test_keys_that_are_named_are_there(place: str, section: str, key: str) -> None:
    if section != "kafka":
        assert key in keys_of(section)


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for link in links(document):
        file, _, section = link.text.partition("#")
        if "://" in file:
            continue
        linked = (document.parent / file).resolve() if file else document
        assert linked.exists(), f"{link.place}: {file}"
        if section:
            assert section in {anchor(heading) for heading in headings(linked)}, f"{link.place}: {link.text}"


@pytest.mark.parametrize("document", current(), ids=lambda path: path.name)
def test_files_of_the_source_that_are_named_are_there(document: Path) -> None:
    named = [
        span for span in spans(document) if re.match(r"(index|snapshots|sidecar|spark_backfill)/[\w/.]*$", span.text)
    ]
    assert [span for span in named if not (ROOT / span.text).exists()] == []


@pytest.mark.parametrize("name", WITH_CONTENTS)
def test_the_contents_name_each_section_once(name: str) -> None:
    sections = [anchor(heading) for heading in headings(ROOT / name, "2")]
    listed = [link.text.removeprefix("#") for link in links(ROOT / name) if link.text.startswith("#")]
    assert listed[: len(sections)] == sections


def test_the_table_of_paths_is_that_of_the_api() -> None:
    text = api_paths.FILE.read_text(encoding="utf-8")
    assert text == api_paths.updated(text), "run: python -m tests.docs.api_paths"
    assert "| `POST /topics/{topic}/pause` | operate | " in text


def test_the_tables_of_the_reference_are_those_of_the_code() -> None:
    text = reference.FILE.read_text(encoding="utf-8")
    assert text == reference.updated(text), "run: python -m tests.docs.reference"
    for row in (
        "| `delay-router rejected redrive` | ",
        "| `delay_router_records_released_total` | counter | `target`, `topic` | ",
        "| `partition_refused` | error | ",
        "| `deliver-id` | 256 bytes | ",
    ):
        assert row in text


def test_each_event_of_the_log_has_a_meaning_and_each_trouble_an_entry_in_the_runbook() -> None:
    written = reference.written_events(reference.FILE.read_text(encoding="utf-8"))
    found = log_events.events()
    assert written.keys() == found.keys()
    for event, (meaning, remedy) in written.items():
        assert meaning, f"{event}: say its meaning in REFERENCE.md"
        is_trouble = not {"debug", "info"} >= {*found[event]} or not found[event]
        assert remedy.count("](RUNBOOK.md#") == is_trouble, f"{event}: link the entry for it in RUNBOOK.md"
    runbook = (ROOT / "RUNBOOK.md").read_text(encoding="utf-8")
    named = {event for event, (_, remedy) in written.items() if remedy and "#delayrouter" not in remedy}
    assert [event for event in named if f"`{event}`" not in runbook] == []


def test_the_tables_of_capacities_follow_from_the_formulas() -> None:
    text = capacity.FILE.read_text(encoding="utf-8")
    assert text == capacity.updated(text), "run: python -m tests.docs.capacity"
    chart = capacity.CHART_FILE.read_text(encoding="utf-8")
    assert chart == capacity.chart_updated(chart), "run: python -m tests.docs.capacity"
    measured = (ROOT / "BENCHMARKS.md").read_text(encoding="utf-8")
    for rate in (DUE_A_SECOND, INCOMING_A_SECOND, OVERDUE_A_SECOND):
        assert f"{rate:,}" in text
        assert f"{rate // 1_000} k/s" in measured
    assert f"{PROCESS_COMMITS:,} to 1,600 commits a second fill the" in measured
    assert f"\n| {MOST_PARTITIONS} | p50" in measured
    for size in (f"{SCATTERED_BYTES} B", f"{capacity.VALUE_BYTES} B"):
        assert size in text
        assert size in measured
    assert f"{PENDING_BYTES} B \N{MULTIPLICATION SIGN} pending records" in text


@pytest.mark.parametrize("document", current(), ids=lambda path: path.name)
def test_metrics_that_are_named_are_there(document: Path) -> None:
    named = set(re.findall(r"(?<![\w.-])delay_router_[a-z_]+", document.read_text(encoding="utf-8")))
    assert named - {"delay_router_client"} <= exported_names()


@cache
def exported_names() -> set[str]:
    series = catalogue().keys()
    return {*series, *(re.sub(r"_(bucket|count|sum)$", "", name) for name in series)}


def test_requests_that_are_printed_are_paths_of_the_api() -> None:
    methods = {path.removeprefix(PREFIX): set(found) for path, found in api_paths.served()["paths"].items()}
    patterns = {re.compile(re.sub(r"{\w+}", "[^/]+", path)): found for path, found in methods.items()}
    (block,) = [block.text for block in blocks(api_paths.FILE) if "api GET" in block.text]
    printed = re.findall(r"^api (\w+) +'?(/[^\s?']*)(?:\?\S+)?(?: +--data '([^']*)')?", block, re.MULTILINE)
    assert len(printed) == len(re.findall(r"^api [A-Z]", block, re.MULTILINE))
    for method, path, body in printed:
        assert any(pattern.fullmatch(path) and method.lower() in found for pattern, found in patterns.items()), path
        if body:
            json.loads(body)

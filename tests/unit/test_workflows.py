"""The workflows of the repository's host: pinned, with no more rights than needed, and with commands that exist."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from tests.support.paths import ROOT

FOLDER: Final = ROOT / ".github" / "workflows"
FILES: Final = sorted(FOLDER.glob("*.yml"))
PINNED: Final = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
LINK: Final = re.compile(r"\]\(([^)]+)\)")
WRITES: Final = {
    ("codeql.yml", "analyze", "security-events"),
    ("release.yml", "image", "packages"),
    ("release.yml", "sign-image", "packages"),
    ("release.yml", "sign-image", "id-token"),
    ("release.yml", "sign-image", "attestations"),
    ("release.yml", "chart", "packages"),
    ("release.yml", "chart", "id-token"),
    ("release.yml", "packages", "id-token"),
    ("release.yml", "notes", "contents"),
    ("release.yml", "notes", "id-token"),
    ("release.yml", "notes", "attestations"),
}
"""Every right to write that a job has."""


class Step(NamedTuple):
    """A step of a job, and its place."""

    file: str
    job: str
    fields: dict[str, Any]

    def __str__(self) -> str:
        said = self.fields.get("name") or self.fields.get("uses") or self.fields["run"].strip()
        return f"{self.file}-{self.job}-{said.splitlines()[0]}"


def _jobs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path in FILES:
        for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items():
            yield path.name, name, job


STEPS: Final = [Step(file, name, fields) for file, name, job in _jobs() for fields in job.get("steps", ())]
SCRIPTS: Final = [step for step in STEPS if "run" in step.fields]


def test_the_workflows_are_these() -> None:
    assert [path.name for path in FILES] == ["codeql.yml", "nightly.yml", "release.yml", "test.yml"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_action_is_pinned(path: Path) -> None:
    used = re.findall(r"uses: (.+)", path.read_text(encoding="utf-8"))
    foreign = [each for each in used if not each.startswith("./")]
    assert [each for each in foreign if not PINNED.fullmatch(each)] == []


def test_an_action_has_one_version() -> None:
    used = {step.fields["uses"] for step in STEPS if "uses" in step.fields}
    assert len({each.partition("@")[0] for each in used}) == len(used)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_workflow_may_only_read(path: Path) -> None:
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["permissions"] == {"contents": "read"}


def test_each_job_has_the_rights_that_it_needs() -> None:
    found = {(file, name, right): level for file, name, job in _jobs() for right, level in job["permissions"].items()}
    assert set(found.values()) == {"read", "write"}
    assert {place for place, level in found.items() if level == "write"} == WRITES


def test_a_checkout_leaves_no_token_behind() -> None:
    checkouts = [step for step in STEPS if step.fields.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert [str(step) for step in checkouts if step.fields["with"]["persist-credentials"] is not False] == []


@pytest.mark.parametrize("step", SCRIPTS, ids=str)
def test_what_a_step_calls_is_there(step: Step) -> None:
    script = step.fields["run"]
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)", script)) <= targets
    for called in re.findall(r"\.ci/\S+", script):
        assert (ROOT / called).stat().st_mode & 0o111, called


@pytest.mark.parametrize("step", SCRIPTS, ids=str)
def test_no_value_from_outside_becomes_part_of_a_script(step: Step) -> None:
    assert "${{" not in step.fields["run"], "give it to the script by env"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_registry_is_named(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"\b[a-z0-9-]+\.(?:io|com|org|net|dev)\b", text) == []


def test_updates_are_looked_for_where_something_is() -> None:
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text(encoding="utf-8"))["updates"]
    names = {"github-actions": ".github/workflows", "docker": "Dockerfile", "maven": "pom.xml", "gomod": "go.mod"}
    looked = {
        (update["package-ecosystem"], folder)
        for update in updates
        for folder in update.get("directories", [update.get("directory")])
    }
    assert all((ROOT / folder.strip("/") / names[ecosystem]).exists() for ecosystem, folder in looked), looked
    poms = {f"/{path.parent.relative_to(ROOT)}" for path in ROOT.glob("[!.]*/**/pom.xml") if "build" not in path.parts}
    assert {folder for ecosystem, folder in looked if ecosystem == "maven"} == poms


def test_a_release_has_the_addresses_of_its_repository(tmp_path: Path) -> None:
    for name in ("README.md", "pyproject.toml", ".ci/client/pyproject.toml", "helm/delay-router/Chart.yaml"):
        copied = tmp_path / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_bytes((ROOT / name).read_bytes())
    script = tmp_path / ".ci" / "addresses"
    script.write_bytes((ROOT / ".ci" / "addresses").read_bytes())
    home = "https://example.invalid/owner/name"
    subprocess.run(["bash", str(script), home, "v1.2.3"], check=True, timeout=10)
    for name in ("pyproject.toml", ".ci/client/pyproject.toml"):
        urls = tomllib.loads((tmp_path / name).read_text(encoding="utf-8"))["project"]["urls"]
        assert urls["Source"] == home
        assert urls["Changelog"] == f"{home}/blob/v1.2.3/CHANGELOG.md"
    chart = yaml.safe_load((tmp_path / "helm/delay-router/Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["home"], chart["sources"]) == (home, [home])
    before, after = (LINK.findall((folder / "README.md").read_text(encoding="utf-8")) for folder in (ROOT, tmp_path))
    assert len(before) == len(after) > 10
    for old, new in zip(before, after, strict=True):
        kind = "raw" if old.endswith(".png") else "blob"
        assert new == (old if old.startswith(("#", "https:")) else f"{home}/{kind}/v1.2.3/{old}")

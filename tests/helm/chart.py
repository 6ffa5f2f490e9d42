"""The chart as the tests see it: rendered with each of its ``ci`` values, and taken apart."""

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import yaml

from tests.helm import tools

CHART: Final = Path(__file__).parents[2] / "helm" / "delay-router"
VALUES: Final = tuple(sorted((CHART / "ci").glob("*-values.yaml")))

OLDEST: Final = "1.27.0"
"""What ``kubeVersion`` in Chart.yaml asks for at least."""

NEWEST: Final = kubernetes_validate.latest_version()

Resource = dict[str, Any]


def values(name: str) -> Path:
    """``ci/<name>-values.yaml``."""
    return CHART / "ci" / f"{name}-values.yaml"


@functools.cache
def rendered(file: Path, *arguments: str, version: str = NEWEST) -> Sequence[Resource]:
    """Every resource of a release called ``r``, for a version of Kubernetes."""
    options = ("--values", file, "--kube-version", version, "--namespace", "delayed", *arguments)
    done = tools.run("helm", "template", "r", CHART, *options)
    assert done.returncode == 0, done.stderr
    return [resource for resource in yaml.safe_load_all(done.stdout) if resource]


def of_kind(resources: Sequence[Resource], kind: str) -> list[Resource]:
    """The resources of one kind."""
    return [resource for resource in resources if resource["kind"] == kind]


def the(resources: Sequence[Resource], kind: str) -> Resource:
    """The router's own resource of a kind: no hook, and not the dashboard."""
    (found,) = (each for each in of_kind(resources, kind) if not _is_beside_the_router(each["metadata"]))
    return found


def _is_beside_the_router(metadata: Resource) -> bool:
    return "helm.sh/hook" in metadata.get("annotations", {}) or metadata["name"].endswith("-dashboard")


def pods(resources: Sequence[Resource]) -> Iterator[tuple[str, Resource]]:
    """(name for messages, pod specification) of everything that makes pods."""
    for resource in resources:
        name = f"{resource['kind']} {resource['metadata']['name']}"
        if resource["kind"] == "Pod":
            yield name, resource["spec"]
        elif resource["kind"] in {"StatefulSet", "Job"}:
            yield name, resource["spec"]["template"]["spec"]


def identity(file: Path) -> str:
    """Name of a values file in the name of a test."""
    return file.name.removesuffix("-values.yaml")

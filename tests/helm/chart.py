"""Renders the chart with each of its ``ci`` values, and finds resources in the result."""

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
"""The minimum of ``kubeVersion`` in Chart.yaml."""

NEWEST: Final = kubernetes_validate.latest_version()

Resource = dict[str, Any]


def values(name: str) -> Path:
    """Return the path of ``ci/<name>-values.yaml``."""
    return CHART / "ci" / f"{name}-values.yaml"


@functools.cache
def rendered(file: Path, *arguments: str, version: str = NEWEST) -> Sequence[Resource]:
    """Return every resource of a release called ``r``, for a version of Kubernetes."""
    options = ("--values", file, "--kube-version", version, "--namespace", "delayed", *arguments)
    done = tools.run("helm", "template", "r", CHART, *options)
    assert done.returncode == 0, done.stderr
    return [resource for resource in yaml.safe_load_all(done.stdout) if resource]


def of_kind(resources: Sequence[Resource], kind: str) -> list[Resource]:
    """Return the resources of one kind."""
    return [resource for resource in resources if resource["kind"] == kind]


def the(resources: Sequence[Resource], kind: str) -> Resource:
    """Return the router's own resource of a kind, without hooks and without the dashboard."""
    (found,) = (each for each in of_kind(resources, kind) if not _is_beside_the_router(each["metadata"]))
    return found


def _is_beside_the_router(metadata: Resource) -> bool:
    return "helm.sh/hook" in metadata.get("annotations", {}) or metadata["name"].endswith("-dashboard")


def pods(resources: Sequence[Resource]) -> Iterator[tuple[str, Resource]]:
    """Yield (name for messages, pod specification) of every resource that makes pods."""
    for resource in resources:
        name = f"{resource['kind']} {resource['metadata']['name']}"
        if resource["kind"] == "Pod":
            yield name, resource["spec"]
        elif resource["kind"] in {"StatefulSet", "Job"}:
            yield name, resource["spec"]["template"]["spec"]


def identity(file: Path) -> str:
    """Return the name of a values file for the name of a test."""
    return file.name.removesuffix("-values.yaml")

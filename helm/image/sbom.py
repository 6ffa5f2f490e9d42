"""Complete the list of components (CycloneDX) of an environment: ``python -m helm.image.sbom SBOM SITE_PACKAGES``.

cyclonedx-py lists the distributions that pip installed. Added here, in the same file: what wheels carry within
themselves (librdkafka and its libraries, the Rust crates of extension modules, CRoaring), Python itself, and the
packages of the base image. Standard library only, run by the Python of the image.
"""

import json
import platform
import ssl
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

from helm.image.bundled import in_librdkafka

DPKG: Final = Path("/var/lib/dpkg/status")

Component = dict[str, Any]


def component(name: str, version: str, kind: str, within: str, scheme: str = "generic") -> Component:
    """One component; ``within`` names the distribution that carries it, and makes its reference unique."""
    made: Component = {
        "type": kind,
        "bom-ref": f"{within}/{name}@{version}",
        "name": name,
        "properties": [{"name": "delay-router:bundled-in", "value": within}],
    }
    if version:
        made |= {"version": version, "purl": f"pkg:{scheme}/{name}@{version}"}
    return made


def bundled(site_packages: Path) -> Iterator[tuple[str, Component]]:
    """(name of the distribution, component that its wheel carries)."""
    for library in sorted(site_packages.glob("confluent_kafka.libs/librdkafka*")):
        for each in in_librdkafka(library):
            yield "confluent-kafka", component(each.name, each.version, "library", "confluent-kafka")
    for distribution in distributions(path=[str(site_packages)]):
        name = distribution.metadata["Name"]
        for file in distribution.files or []:
            if file.parent.name == "sboms" and file.suffix == ".json":
                for each in json.loads(Path(str(distribution.locate_file(file))).read_text()).get("components", []):
                    yield name, {**each, "bom-ref": f"{name}/{each['bom-ref']}", "components": []}
    sys.path.insert(0, str(site_packages))
    import pyroaring  # noqa: PLC0415 - of the environment that is described

    yield "pyroaring", component("croaring", pyroaring.__croaring_version__.lstrip("v"), "library", "pyroaring")


def beneath() -> Iterator[Component]:
    """Python and the packages of the base image."""
    yield component("cpython", platform.python_version(), "platform", "base-image")
    openssl = ssl.OPENSSL_VERSION.split()[1]
    yield component("openssl", openssl, "library", "base-image")
    if DPKG.exists():
        for stanza in DPKG.read_text(encoding="utf-8").strip().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and line[0] != " ")
            if "installed" in fields.get("Status", ""):
                yield component(fields["Package"], fields["Version"], "library", "base-image", "deb/debian")


def complete(sbom: dict[str, Any], site_packages: Path) -> dict[str, Any]:
    """Return the list with the libraries that it lacks, each below the distribution that carries it in the graph."""
    references = {each["name"].lower(): each["bom-ref"] for each in sbom["components"]}
    edges = {each["ref"]: set(each.get("dependsOn", [])) for each in sbom.get("dependencies", [])}
    added: dict[str, Component] = {}
    for distribution, each in bundled(site_packages):
        added[each["bom-ref"]] = each
        edges.setdefault(references[distribution.lower()], set()).add(each["bom-ref"])
    for each in beneath():
        added[each["bom-ref"]] = each
    for reference in added:
        edges.setdefault(reference, set())
    dependencies = [{"ref": reference, "dependsOn": sorted(below)} for reference, below in sorted(edges.items())]
    return {**sbom, "components": [*sbom["components"], *added.values()], "dependencies": dependencies}


def main(file: Path, site_packages: Path) -> None:
    """Rewrite the file."""
    completed = complete(json.loads(file.read_text(encoding="utf-8")), site_packages)
    file.write_text(json.dumps(completed, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

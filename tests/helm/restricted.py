"""Checks the restricted profile of Kubernetes' Pod Security Standards, and some rules beyond it."""

from collections.abc import Iterator
from typing import Any, Final

_VOLUMES: Final = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected"}
_HOST: Final = ("hostNetwork", "hostPID", "hostIPC")


def breaches(pod: dict[str, Any]) -> Iterator[str]:
    """Yield the breaches of a pod specification: forbidden settings, and missing ones that it must have."""
    context = pod.get("securityContext", {})
    yield from (f"{key} is set" for key in _HOST if pod.get(key))
    if context.get("runAsNonRoot") is not True:
        yield "runAsNonRoot is not true"
    if not context.get("runAsUser") or not context.get("runAsGroup"):
        yield "user or group is root or not numeric"
    if context.get("seccompProfile", {}).get("type") not in {"RuntimeDefault", "Localhost"}:
        yield "no seccomp profile"
    if pod.get("automountServiceAccountToken") is not False:
        yield "a service account token is mounted"
    if pod.get("enableServiceLinks") is not False:
        yield "variables of services would get into the environment"
    for volume in pod.get("volumes", []):
        if not (volume.keys() - {"name"}) <= _VOLUMES | {"secret"}:
            yield f"volume {volume['name']} is of a kind that is not allowed"
        if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
            yield f"volume {volume['name']} has no limit"
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        yield from (f"{container['name']}: {problem}" for problem in _container(container))


def _container(container: dict[str, Any]) -> Iterator[str]:
    context = container.get("securityContext", {})
    if context.get("allowPrivilegeEscalation") is not False:
        yield "privileges may be escalated"
    if context.get("capabilities", {}).get("drop") != ["ALL"] or context["capabilities"].get("add"):
        yield "not all capabilities are dropped"
    if context.get("privileged"):
        yield "privileged"
    if context.get("readOnlyRootFilesystem") is not True:
        yield "its root file system can be written"
    if any(port.get("hostPort") for port in container.get("ports", [])):
        yield "a port of the host"
    resources = container.get("resources", {})
    if "memory" not in resources.get("limits", {}) or not {"cpu", "memory"} <= resources.get("requests", {}).keys():
        yield "no requests of CPU and memory, or no limit of memory"

"""Tests that every rendering is valid for Kubernetes, within the restricted profile, and accepted by the router."""

import base64
import copy
import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

import sidecar
from sidecar.config.model import Config, load
from tests.helm import chart, restricted, schema, tools
from tests.helm.chart import CHART, VALUES, Resource, of_kind, rendered
from tests.support.paths import ROOT

_OPERATOR = {
    "ServiceMonitor": "servicemonitors.yaml",
    "PodMonitor": "podmonitors.yaml",
    "PrometheusRule": "prometheusrules.yaml",
    "ScaledObject": "scaledobjects.yaml",
}

each_values = pytest.mark.parametrize("file", VALUES, ids=chart.identity)


@each_values
def test_lint(file: Path) -> None:
    done = tools.run("helm", "lint", "--strict", "--kube-version", chart.NEWEST, "--values", file, CHART)
    assert done.returncode == 0, done.stdout + done.stderr


def test_lint_of_the_chart_as_it_is() -> None:
    """A registry lints a chart without values."""
    done = tools.run("helm", "lint", "--strict", "--kube-version", chart.NEWEST, CHART)
    assert done.returncode == 0, done.stdout + done.stderr


@each_values
@pytest.mark.parametrize("version", [chart.OLDEST, chart.NEWEST])
def test_strict_schemas(file: Path, version: str) -> None:
    resources = rendered(file, version=version)
    assert {"ConfigMap", "Service", "StatefulSet", "Pod"} <= {resource["kind"] for resource in resources}
    for resource in resources:
        if resource["kind"] in _OPERATOR:
            _validate_custom(resource)
        else:
            kubernetes_validate.validate(resource, version, strict=True)


def test_the_schemas_are_strict() -> None:
    """A key that does not exist is refused, in Kubernetes' kinds and in the kinds of operators."""
    resources = copy.deepcopy(rendered(chart.values("monitored")))
    chart.the(resources, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(chart.the(resources, "StatefulSet"), chart.NEWEST, strict=True)
    chart.the(resources, "ServiceMonitor")["spec"]["endpoints"][0]["intervall"] = "1s"
    with pytest.raises(jsonschema.ValidationError):
        _validate_custom(chart.the(resources, "ServiceMonitor"))


@each_values
def test_restricted_profile(file: Path) -> None:
    found = {name: list(restricted.breaches(pod)) for name, pod in chart.pods(rendered(file))}
    assert len(found) >= 2
    assert not any(found.values()), found


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("securityContext", "runAsNonRoot"), False),
        (("securityContext", "runAsUser"), 0),
        (("hostNetwork",), True),
        (("automountServiceAccountToken",), True),
        (("containers", 0, "securityContext", "readOnlyRootFilesystem"), False),
        (("containers", 0, "securityContext", "capabilities", "drop"), []),
        (("containers", 0, "resources", "limits"), {}),
        (("volumes",), [{"name": "host", "hostPath": {"path": "/"}}]),
        (("volumes",), [{"name": "tmp", "emptyDir": {}}]),
    ],
)
def test_a_breach_is_seen(place: tuple[str | int, ...], value: object) -> None:
    pod: Any = copy.deepcopy(chart.the(rendered(chart.values("minimal")), "StatefulSet"))["spec"]["template"]["spec"]
    inner = pod
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    assert len(list(restricted.breaches(pod))) == 1


@each_values
def test_the_router_accepts_its_configuration(file: Path, tmp_path: Path) -> None:
    config = _loaded(rendered(file), tmp_path)
    given = yaml.safe_load(file.read_text())["config"]
    assert [topic.name for topic in config.delay_topics] == [topic["name"] for topic in given["delay_topics"]]
    for key, value in given["kafka"].items():
        assert config.kafka[key] == (str(value).lower() if isinstance(value, bool) else str(value))


def test_values_arrive_as_they_were_written(tmp_path: Path) -> None:
    config = _loaded(rendered(chart.values("everything")), tmp_path)
    assert config.router.group_id == 'routers of team "a" <b> & c'
    assert (config.router.tick_ms, config.router.payload_memory_bytes) == (20, 64 << 20)
    assert config.router.batch_records == 1_000, "the environment wins over the file"
    assert config.router.instance_id == ""
    assert config.http.listen == "0.0.0.0:9090"
    orders, mails = config.delay_topics
    assert (orders.max_delay_ms, orders.seal_records, orders.trim, orders.timestamp) == (0, 1_000_000, True, "due")
    assert [alias.preset or alias.name for alias in orders.aliases] == ["cesium", "x-due"]
    assert orders.rejected == mails.rejected == "dead"


def test_secrets_come_by_reference_only(tmp_path: Path) -> None:
    config = _loaded(rendered(chart.values("secured")), tmp_path)
    assert config.kafka["security.protocol"] == "SASL_SSL"
    assert config.kafka["sasl.username"] == "<delay-router-user/username>"
    assert config.kafka["sasl.password"] == "<delay-router-user/password>"
    assert config.router.instance_id == "<metadata.name>"


def test_a_user_name_may_be_given_where_the_secret_holds_none(tmp_path: Path) -> None:
    resources = rendered(chart.values("strimzi"))
    config = _loaded(resources, tmp_path)
    assert config.kafka["sasl.username"] == "delay-router"
    assert config.kafka["sasl.password"] == "<delay-router/password>"
    pod = chart.the(resources, "StatefulSet")["spec"]["template"]["spec"]
    assert ("delay-router", "username") not in _mounted(pod).values(), (
        "a key that is not there keeps the pod from starting"
    )


def test_a_client_of_oauth_has_its_secret_from_a_file(tmp_path: Path) -> None:
    kafka = _loaded(rendered(chart.values("oauth")), tmp_path).kafka
    of_client = {key.removeprefix("sasl.oauthbearer."): kafka[key] for key in kafka if "oauthbearer" in key}
    assert of_client == {
        "method": "oidc",
        "token.endpoint.url": "https://login.example.org/realms/kafka/token",
        "scope": "kafka",
        "client.id": "delay-router",
        "client.secret": "<delay-router-client/client-secret>",
    }
    assert (kafka["security.protocol"], kafka["sasl.mechanism"]) == ("SASL_SSL", "OAUTHBEARER")
    assert not kafka.keys() & {"sasl.username", "sasl.password"}


def test_a_role_of_the_service_account_takes_no_secret(tmp_path: Path) -> None:
    resources = rendered(chart.values("msk-iam"))
    config = _loaded(resources, tmp_path)
    assert config.router.msk_region == "eu-central-1"
    assert (config.kafka["security.protocol"], config.kafka["sasl.mechanism"]) == ("SASL_SSL", "OAUTHBEARER")
    account = chart.the(resources, "ServiceAccount")
    assert account["metadata"]["annotations"] == {
        "eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/delay-router"
    }
    pod = chart.the(resources, "StatefulSet")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert not [volume for volume in pod["volumes"] if "secret" in volume]


def test_what_is_added_to_the_pods_reaches_the_job_for_topics_too() -> None:
    resources = rendered(chart.values("everything"))
    (job,) = of_kind(resources, "Job")
    for pod in (each["spec"]["template"]["spec"] for each in (job, chart.the(resources, "StatefulSet"))):
        (container,) = pod["containers"]
        assert [min(source) for source in container["envFrom"]] == ["configMapRef", "prefix"]
        named = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert (named["zones"], named["scratch"]) == ("/usr/share/zoneinfo/own", "/scratch")
        assert named.keys() == {volume["name"] for volume in pod["volumes"]}


def test_common_labels_are_on_everything_and_give_way_to_closer_ones() -> None:
    resources = rendered(chart.values("everything"))
    of_pods = chart.the(resources, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert of_pods["team"] == "messaging"
    labels = [each["metadata"]["labels"] for each in resources]
    assert {(each["app.kubernetes.io/part-of"], each["team"]) for each in labels} == {("shop", "everybody")}


def test_client_certificates_are_mounted(tmp_path: Path) -> None:
    resources = rendered(chart.values("mutual-tls"))
    config = _loaded(resources, tmp_path)
    assert config.kafka["security.protocol"] == "SSL"
    assert config.kafka["ssl.key.password"] == "<delay-router/user.password>"
    pod = chart.the(resources, "StatefulSet")["spec"]["template"]["spec"]
    named = {config.kafka[f"ssl.{key}.location"] for key in ("ca", "certificate", "key")}
    assert _mounted(pod).keys() == named | {_environment(pod)["DELAY_ROUTER__KAFKA__SSL_KEY_PASSWORD_FILE"]}


def test_the_admin_api_finds_its_files(tmp_path: Path) -> None:
    resources = rendered(chart.values("admin"))
    admin = _loaded(resources, tmp_path).admin
    pod = chart.the(resources, "StatefulSet")["spec"]["template"]["spec"]
    assert {path: secret for path, (secret, _) in _mounted(pod).items()} == {
        admin.token_file: "delay-router-tokens",
        admin.tls_cert_file: "delay-router-admin-cert",
        admin.tls_key_file: "delay-router-admin-cert",
        admin.tls_client_ca_file: "operators-ca",
    }
    assert admin.is_on
    assert admin.page
    assert not admin.allow_plaintext
    services = of_kind(resources, "Service")
    assert [each["metadata"]["name"] for each in services if each["metadata"]["name"] in admin.allowed_hosts]


def test_the_job_for_topics_has_the_same_configuration_and_its_own_principal(tmp_path: Path) -> None:
    resources = rendered(chart.values("secured"))
    own, shared = of_kind(resources, "ConfigMap")[::-1]
    assert own["data"] == shared["data"]
    (job,) = of_kind(resources, "Job")
    pod = job["spec"]["template"]["spec"]
    assert pod["volumes"][0]["configMap"]["name"] in {each["metadata"]["name"] for each in (own, shared)}
    assert pod["containers"][0]["args"] == ["init", "--partitions=12", "--replication-factor=3", "--create-targets"]
    named = _environment(pod)["DELAY_ROUTER__KAFKA__SASL_PASSWORD_FILE"]
    assert _mounted(pod)[named] == ("delay-router-admin", "password")


def test_a_contradiction_is_refused_with_its_remedy() -> None:
    oauth = "sasl.enabled=true,tls.enabled=true,sasl.existingSecret=s,sasl.mechanism=OAUTHBEARER"
    for settings, remedy in (
        ("sasl.enabled=true,sasl.existingSecret=s", "set tls.enabled=true"),
        ("sasl.enabled=true,tls.enabled=true", "needs sasl.existingSecret"),
        (oauth, "needs sasl.oauth.tokenEndpoint"),
        ("sasl.oauth.tokenEndpoint=https://login/token", "has no effect without sasl.enabled and"),
        (
            f"{oauth},sasl.oauth.tokenEndpoint=https://login/token",
            "networkPolicy would block https://login/token",
        ),
        ("config.kafka.bootstrap\\.servers=kafka:29092", "add 29092"),
        ("config.kafka.sasl\\.password=secret", "'sasl.password' not allowed"),
        ("config.kafka.bootstrap\\.servers=", "bootstrap.servers is required: the brokers"),
        ("config.router.instance_id=one", "'instance_id' not allowed"),
        ("config.router.tick=10", "/config/router/tick"),
        ("replica=3", "'replica' not allowed"),
        ("serviceMonitor.enabled=true,podMonitor.enabled=true", "scrape every router twice"),
        ("autoscaling.enabled=true", "needs autoscaling.maxReplicas"),
        ("autoscaling.enabled=true,autoscaling.maxReplicas=1", "not fewer than minReplicas"),
        ("autoscaling.enabled=true,autoscaling.maxReplicas=9", "needs autoscaling.prometheus"),
        ("user=0", "/user"),
        ("extraVolumes[0].name=node,extraVolumes[0].hostPath.path=/", "'hostPath' not allowed"),
        ("commonLabels.helm\\.sh/chart=mine", "invalid propertyName 'helm.sh/chart'"),
        ("podLabels.app\\.kubernetes\\.io/component=mine", "invalid propertyName 'app.kubernetes.io/component'"),
        ("terminationGracePeriodSeconds=30", "/terminationGracePeriodSeconds"),
    ):
        arguments = ("--kube-version", chart.NEWEST, "--values", chart.values("minimal"), "--set", settings)
        done = tools.run("helm", "template", "r", CHART, *arguments)
        assert done.returncode != 0, settings
        assert remedy in done.stderr, (settings, done.stderr)


def test_a_new_configuration_restarts_the_routers_and_nothing_else_does() -> None:
    def checksum(*arguments: str) -> str:
        found = chart.the(rendered(chart.values("minimal"), *arguments), "StatefulSet")
        return str(found["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    assert checksum("--set", "replicas=5") == checksum()
    assert checksum("--set", "config.router.tick=20ms") != checksum()


def test_the_version_is_the_routers() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == sidecar.__version__
    # The chart takes this tag by default, so the documents build it.
    for document in (ROOT / "OPERATIONS.md", CHART / "README.md"):
        assert set(re.findall(r"kafka-delay-router:([0-9.]\S+?)`", document.read_text())) == {sidecar.__version__}


def test_the_icon_is_the_pages() -> None:
    kind, _, held = yaml.safe_load((CHART / "Chart.yaml").read_text())["icon"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert (
        base64.b64decode(held) == (Path(sidecar.__file__).parent / "http" / "page" / "static" / "icon.svg").read_bytes()
    )


def test_resources_of_the_users_are_rendered() -> None:
    resources = rendered(chart.values("admin"))
    (ingress,) = of_kind(resources, "Ingress")
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    (service,) = (
        each for each in of_kind(resources, "Service") if each["metadata"]["name"] == path["backend"]["service"]["name"]
    )
    assert path["backend"]["service"]["port"]["name"] in {port["name"] for port in service["spec"]["ports"]}
    assert ingress["metadata"]["labels"] == {"app.kubernetes.io/instance": "r"}


def test_the_schema_of_the_configuration_is_the_routers() -> None:
    written = json.loads(schema.FILE.read_text())
    assert written == schema.updated(written), "run: python -m tests.helm.schema"


def _loaded(resources: Sequence[Resource], folder: Path) -> Config:
    """Return the configuration of the router in a pod."""
    pod = chart.the(resources, "StatefulSet")["spec"]["template"]["spec"]
    file = folder / "delay-router.toml"
    file.write_text(chart.the(resources, "ConfigMap")["data"][file.name])
    tomllib.loads(file.read_text())
    environ = _environment(pod)
    mount = next(mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "config")
    assert environ.pop("DELAY_ROUTER_CONFIG") == f"{mount['mountPath']}/{file.name}"
    for number, (path, secret) in enumerate(_mounted(pod).items()):
        held = folder / str(number)
        held.write_text("<{}/{}>\n".format(*secret))
        environ = {name: str(held) if value == path else value for name, value in environ.items()}
    return load(file, environ)


def _mounted(pod: Resource) -> dict[str, tuple[str, str]]:
    """Return the files that are mounted from secrets, each with the secret and its key."""
    return {
        f"{mount['mountPath']}/{item['path']}": (volume["secret"]["secretName"], item["key"])
        for volume in pod["volumes"]
        for mount in pod["containers"][0]["volumeMounts"]
        for item in volume.get("secret", {}).get("items", [])
        if mount["name"] == volume["name"]
    }


def _environment(pod: Resource) -> dict[str, str]:
    """Return the variables of the only container; a reference to a field becomes ``<field>``, and secrets must not
    occur.
    """
    environ = {}
    for variable in pod["containers"][0]["env"]:
        source = variable.get("valueFrom", {})
        assert "secretKeyRef" not in source, "an environment is shown by many tools"
        if "fieldRef" in source:
            environ[variable["name"]] = f"<{source['fieldRef']['fieldPath']}>"
        else:
            environ[variable["name"]] = variable["value"]
    return environ


def _validate_custom(resource: Resource) -> None:
    definition = next(yaml.safe_load_all(tools.operator_schema(_OPERATOR[resource["kind"]]).read_text()))
    (version,) = (each for each in definition["spec"]["versions"] if resource["apiVersion"].endswith(each["name"]))
    # The schema itself is not checked first: some of its patterns are Go's.
    schema_of_kind = _closed(version["schema"]["openAPIV3Schema"], top=True)
    jsonschema.Draft202012Validator(schema_of_kind).validate(resource)


def _closed(node: Any, *, top: bool = False) -> Any:
    """Return the schema with every object closed that lists its keys, as an API server would prune them."""
    if isinstance(node, list):
        return [_closed(each) for each in node]
    if not isinstance(node, dict):
        return node
    closed = {key: _closed(value) for key, value in node.items()}
    if isinstance(node.get("properties"), dict) and "additionalProperties" not in node and node.get("type") == "object":
        closed["additionalProperties"] = False
    if top:
        # The schema leaves the common fields of all resources to the API server.
        closed["properties"]["metadata"] = {"type": "object"}
    return closed

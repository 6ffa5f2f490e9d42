"""Keys of ``[kafka]`` that would run code or send credentials in the clear, refused from every source."""

from pathlib import Path

import pytest

from index.errors import ConfigError
from sidecar.cluster.topics import check
from sidecar.config.librdkafka_keys import LIMITED, REFUSED, doubts
from sidecar.config.model import Config, load
from sidecar.config.reference import render_reference

# Rule S18 of the security notes, and further such keys of librdkafka 2.16.
RUNS_CODE = ["plugin.library.paths", "sasl.kerberos.kinit.cmd", "ssl.engine.location", "ssl.engine.id"]
SASL = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "canary"}


def configured(folder: Path, kafka: dict[str, str], router: str = "", **environ: str) -> Config:
    file = folder / "router.toml"
    lines = [f'"{key}" = "{value}"' for key, value in {"bootstrap.servers": "a:1", **kafka}.items()]
    topics = '[[delay_topics]]\nname = "d"\ndefault_target = "t"'
    file.write_text("\n".join(["[kafka]", *lines, "[router]", router, topics]), encoding="utf-8")
    return load(file, environ)


def refused(folder: Path, kafka: dict[str, str], **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        configured(folder, kafka, **environ)
    return str(caught.value)


@pytest.mark.parametrize("key", RUNS_CODE)
def test_keys_that_run_code_are_refused_from_file_and_environment(tmp_path: Path, key: str) -> None:
    assert key in REFUSED
    assert "load or run code" in refused(tmp_path, {key: "x"})
    variable = f"DELAY_ROUTER__KAFKA__{key.replace('.', '_').upper()}"
    assert "load or run code" in refused(tmp_path, {}, **{variable: "x"})


@pytest.mark.parametrize("value", ["/opt/evil.so", "default,../evil", "default, evil", "pkcs11", ""])
def test_a_provider_is_one_of_openssl_or_it_is_a_library_that_would_be_run(tmp_path: Path, value: str) -> None:
    assert "would be loaded as a library and run" in refused(tmp_path, {"ssl.providers": value})


def test_providers_of_openssl_are_fine(tmp_path: Path) -> None:
    assert configured(tmp_path, {"ssl.providers": "default, legacy"}).kafka["ssl.providers"] == "default, legacy"


@pytest.mark.parametrize("key", ["sasl.kerberos.principal", "sasl.kerberos.keytab", "sasl.kerberos.service.name"])
@pytest.mark.parametrize("value", ["x; touch /tmp/evil", "$(id)", "`id`", "a|b", "a\\nb", "a b", "é"])
def test_nothing_of_a_kerberos_key_reaches_a_shell(tmp_path: Path, key: str, value: str) -> None:
    assert "puts it into a shell command" in refused(tmp_path, {key: value})


def test_kerberos_names_are_fine(tmp_path: Path) -> None:
    kerberos = {"sasl.kerberos.principal": "router/host-1.eu@REALM", "sasl.kerberos.keytab": "/etc/k/router.keytab"}
    assert configured(tmp_path, kerberos).kafka.items() >= kerberos.items()


@pytest.mark.parametrize("key", ["error_cb", "oauth_cb", "on_commit", "on_delivery", "logger"])
def test_callbacks_cannot_come_from_a_file(tmp_path: Path, key: str) -> None:
    assert "callbacks cannot come from a configuration" in refused(tmp_path, {key: "os.system"})


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "sasl_plaintext", " Sasl_Plaintext "])
def test_credentials_travel_in_the_clear_only_where_that_is_said(tmp_path: Path, protocol: str) -> None:
    kafka = {"security.protocol": protocol, **SASL}
    told = refused(tmp_path, kafka)
    assert 'kafka."security.protocol": SASL_PLAINTEXT sends credentials' in told
    assert told.endswith('use "SASL_SSL", or set router.allow_sasl_plaintext = true')
    assert "canary" not in told
    assert "SASL_PLAINTEXT" in refused(tmp_path, SASL, DELAY_ROUTER__KAFKA__SECURITY_PROTOCOL=protocol)
    config = configured(tmp_path, kafka, "allow_sasl_plaintext = true")
    assert config.router.allow_sasl_plaintext
    (warning,) = [each for each in check.configuration_findings(config) if each.level.value == "warn"]
    assert "credentials" in warning.message


def test_a_token_is_not_fetched_in_the_clear(tmp_path: Path) -> None:
    kafka = {"security.protocol": "SASL_SSL", "sasl.oauthbearer.token.endpoint.url": "http://login.example/token"}
    assert "the client's secret unencrypted; use https:" in refused(tmp_path, kafka)
    configured(tmp_path, kafka, "allow_sasl_plaintext = true")
    kafka["sasl.oauthbearer.token.endpoint.url"] = "https://login.example/token"
    assert configured(tmp_path, kafka).kafka.items() >= kafka.items()


@pytest.mark.parametrize(
    ("kafka", "told"),
    [
        ({**SASL}, "sasl.mechanism, sasl.password, sasl.username: not used, because security.protocol is PLAINTEXT"),
        ({"security.protocol": "ssl", **SASL}, "not used, because security.protocol is SSL"),
        ({"security.protocol": "ssl", "enable.ssl.certificate.verification": "False"}, "anybody can pose"),
        ({"security.protocol": "sasl_ssl", "ssl.endpoint.identification.algorithm": "none"}, "any host with"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}, "nothing fetches a token"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanisms": "oauthbearer"}, "nothing fetches a token"),
    ],
)
def test_what_is_most_likely_not_meant_is_a_warning(tmp_path: Path, kafka: dict[str, str], told: str) -> None:
    (warning,) = [
        each for each in check.configuration_findings(configured(tmp_path, kafka)) if each.level.value == "warn"
    ]
    assert told in warning.message
    assert warning.remedy


OAUTH = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "OIDC"}


@pytest.mark.parametrize(
    "kafka",
    [
        {},
        {"security.protocol": "ssl"},
        {"security.protocol": "SASL_SSL", **SASL},
        {"security.protocol": "SASL_SSL", **OAUTH},
    ],
)
def test_there_is_no_doubt_about_the_usual_ways(kafka: dict[str, str]) -> None:
    assert [*doubts(kafka)] == []


def test_the_reference_names_every_limit() -> None:
    reference = render_reference()
    assert all(f"| `{key}` | {allowed} |" in reference for key, allowed in LIMITED.items())
    assert "| `allow_sasl_plaintext` | true or false | `false` | Let credentials travel unencrypted" in reference

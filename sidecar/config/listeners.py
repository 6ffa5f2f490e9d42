"""``[admin]``: the API for operators, and the base of all listeners."""

import ipaddress
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, model_validator

from sidecar.config.problems import Problems
from sidecar.config.section import Section
from sidecar.config.value_types import HeaderPattern, HostName, ListenAddress, RecordLink, TopicLink

LOCALHOST: Final = "localhost"

MASKED: Final = (
    "*authorization*",
    "*cookie*",
    "*token*",
    "*secret*",
    "*password*",
    "*passwd*",
    "*credential*",
    "*api?key*",
    "*apikey*",
    "*private?key*",
)
"""Names under which programs commonly send credentials for other systems."""


def _several(value: object) -> object:
    """Split the text of an environment variable at its commas."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


class Listener(Section):
    """A section with a ``listen`` key: host and port of a server."""

    listen: ListenAddress

    @property
    def host(self) -> str:
        """Host part of the address, without the brackets of IPv6."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """Port; 0 lets the system choose."""
        return int(self.listen.rpartition(":")[2])


class AdminConfig(Listener):
    """``[admin]``: the admin API, which is off without a token file."""

    listen: ListenAddress = Field("127.0.0.1:8081", description="Address of the admin API, /api/v1.")
    token_file: str = Field(
        "",
        description="File with a line for each token, `read TOKEN`, `operate TOKEN` or `produce TOKEN`, of 32 "
        "characters at least; `read+payload` and `operate+payload` also see keys, values and values of headers. It is "
        "read again when it changes. Empty: the admin API is off, and nothing listens.",
    )
    tls_cert_file: str = Field("", description="Certificate chain (PEM) of the admin API. Empty: no TLS.")
    tls_key_file: str = Field("", description="Private key (PEM) of the certificate, without a password.")
    tls_client_ca_file: str = Field(
        "",
        description="Certificate authorities (PEM): a client without a certificate of theirs is refused, token or not.",
    )
    allow_plaintext: bool = Field(
        False,
        description="Listen without TLS on an address that is not loopback: tokens then travel unencrypted. "
        "For a network that nobody else can listen to, or behind a proxy that speaks TLS.",
    )
    allowed_hosts: Annotated[tuple[HostName, ...], BeforeValidator(_several)] = Field(
        (),
        description="Names, without a port, that a request may give as its Host, besides loopback's and the one of "
        "`listen`; a browser that comes by another name is refused.",
    )

    page: bool = Field(
        False,
        description="Also serve a page for browsers at `/`. It asks for a token, and offers the views and actions that "
        "the role of the token allows; its own files need no token and hold no data of the cluster.",
    )

    topic_link: TopicLink = Field(
        "",
        description="Address of a topic in another console, for links on the page: "
        "`https://console.example/topics/{topic}`. Empty: no links.",
    )
    record_link: RecordLink = Field(
        "",
        description="The same of a record: `https://console.example/topics/{topic}?p={partition}&o={offset}`.",
    )

    masked_headers: Annotated[tuple[HeaderPattern, ...], BeforeValidator(_several)] = Field(
        MASKED,
        description="Names of headers whose values nobody is shown, with `+payload` or without; `*` stands for any "
        "text, `?` for one character, and case does not count. A list of one's own takes the place of this one.",
    )

    @property
    def is_on(self) -> bool:
        """Says that there is an admin API."""
        return bool(self.token_file)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            missing, given = (
                ("tls_key_file", "tls_cert_file") if self.tls_cert_file else ("tls_cert_file", "tls_key_file")
            )
            raise Problems([(("admin", missing), f"required with {given}")])
        if self.tls_client_ca_file and not self.tls_cert_file:
            raise Problems([(("admin", "tls_client_ca_file"), "has no effect without tls_cert_file and tls_key_file")])
        if self.page and not self.is_on:
            raise Problems([(("admin", "page"), "has no effect without token_file: the page is of the admin API")])
        for key in ("topic_link", "record_link"):
            if getattr(self, key) and not self.page:
                raise Problems([(("admin", key), "has no effect without page")])
        if self.is_on and not self.tls_cert_file and not self.allow_plaintext and not is_loopback(self.host):
            remedy = (
                "tokens would travel unencrypted: name tls_cert_file and tls_key_file, listen on 127.0.0.1,"
                " or set admin.allow_plaintext = true"
            )
            raise Problems([(("admin", "listen"), f"{self.listen} is not loopback, and {remedy}")])
        return self


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach an address; a name other than localhost may belong to any host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == LOCALHOST

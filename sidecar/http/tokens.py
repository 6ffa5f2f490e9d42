"""Reads the token file, which gives each caller a role; reads it again when it changes while the router runs."""

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from index.errors import ConfigError

MIN_TOKEN_CHARACTERS: Final = 32
MAX_TOKENS: Final = 1_000
MAX_FILE_BYTES: Final = 1_048_576
LOOK_EVERY_S: Final = 1.0
"""Least time between two reads of the file, so also the time within which a change is noticed."""

_SHOWN_DIGITS: Final = 8
_LINES: Final = "`read TOKEN`, `operate TOKEN` or `produce TOKEN`"
_PAYLOAD: Final = "+payload"
"""Suffix of a reading role: the caller may also see the parts of records that the API shows."""

# token68 of RFC 9110: the text behind "Bearer".
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")


class Role(StrEnum):
    """Role of a token, and role that a request needs."""

    READ = "read"
    OPERATE = "operate"
    PRODUCE = "produce"


class Caller(NamedTuple):
    """A caller; ``name`` is the beginning of the token's SHA-256, by which a log may name it.

    ``sees_payload`` says whether it may also see the content of records. No role includes that by itself, since an
    operator need not know the content.
    """

    role: Role
    name: str
    sees_payload: bool = False

    def may(self, needed: Role) -> bool:
        """Say whether a request that takes this role is allowed: operate includes read, and nothing else another."""
        return self.role is needed or (self.role is Role.OPERATE and needed is Role.READ)


class _Token(NamedTuple):
    digest: bytes
    caller: Caller


class TokenFile:
    """The tokens in force; used by the event loop only. The constructor raises ConfigError for an unusable file."""

    def __init__(self, path: Path, now_s: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._now_s = now_s
        content = _read(path)
        self._tokens = _parsed(content)
        self._read_digest = _digest(content)
        self._looked_s = now_s()
        self._problem = ""
        self._log = structlog.get_logger()

    def caller(self, presented: bytes) -> Caller | None:
        """Return the caller with this token, None for an unknown one; a match takes as long as no match."""
        self._look_again()
        digest = _digest(presented)
        found: Caller | None = None
        for token in self._tokens:
            if hmac.compare_digest(digest, token.digest):
                found = token.caller
        return found

    def _look_again(self) -> None:
        if self._now_s() - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = self._now_s()
        try:
            content = _read(self._path)
            if _digest(content) == self._read_digest:
                self._problem = ""
                return
            self._tokens = _parsed(content)
        except ConfigError as error:
            if self._problem != str(error):
                self._problem = str(error)
                self._log.error("admin_tokens_unusable", why=self._problem, still_hold=len(self._tokens))
            return
        self._read_digest = _digest(content)
        self._problem = ""
        self._log.info("admin_tokens_changed", tokens=len(self._tokens))


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"admin.token_file: {path} cannot be read: {error.strerror or error}") from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"admin.token_file: {path} has more than {MAX_FILE_BYTES} bytes; is it another file?")
    return content


def _parsed(content: bytes) -> tuple[_Token, ...]:
    """Return the tokens of a file; raise ConfigError, which names the line and never its text."""
    tokens: dict[bytes, _Token] = {}
    for number, rights, token in _lines(content):
        where = f"admin.token_file: line {number}"
        role, sees_payload = rights.removesuffix(_PAYLOAD), rights.endswith(_PAYLOAD)
        if role not in tuple(Role) or not token:
            raise ConfigError(f"{where}: write {_LINES}, or begin it with # for a comment")
        if not _TOKEN.fullmatch(token):
            raise ConfigError(f"{where}: a token is of letters, digits and ._~+/- without spaces, then any =")
        if len(token) < MIN_TOKEN_CHARACTERS:
            raise ConfigError(
                f"{where}: the token has {len(token)} characters and needs {MIN_TOKEN_CHARACTERS};"
                " make one: openssl rand -hex 32"
            )
        if sees_payload and role == Role.PRODUCE:
            raise ConfigError(f"{where}: {Role.PRODUCE} reads nothing, so {_PAYLOAD} goes with read or operate")
        digest = _digest(token.encode())
        if digest in tokens:
            raise ConfigError(f"{where}: this token is there already; two callers need two")
        tokens[digest] = _Token(digest, Caller(Role(role), digest.hex()[:_SHOWN_DIGITS], sees_payload))
    if not tokens:
        raise ConfigError(f"admin.token_file: no token is in it; write {_LINES}")
    if len(tokens) > MAX_TOKENS:
        raise ConfigError(f"admin.token_file: {len(tokens)} tokens are over the limit of {MAX_TOKENS}")
    return tuple(tokens.values())


def _lines(content: bytes) -> Iterator[tuple[int, str, str]]:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ConfigError("admin.token_file: it is not text in UTF-8") from None
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            role, _, token = stripped.partition(" ")
            yield number, role, token.strip()

"""Checks each request before it reaches the code that answers it, and writes the audit log of all requests.

The order of the checks is size, encoding, Host, token, pace, role, body; open files need neither token nor role. An
error in the code that answers also ends here, as a problem without detail.
"""

import asyncio
import math
import re
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from sidecar.config.listeners import LOCALHOST, AdminConfig
from sidecar.http import problems
from sidecar.http.pace import KNOWN, UNKNOWN, Pace
from sidecar.http.problems import Refusal
from sidecar.http.server import ANSWERED_WITHIN_S, MAX_HEADER_BYTES, MAX_REQUEST_LINE_BYTES
from sidecar.http.tokens import Caller, Role, TokenFile

MAX_BODY_BYTES: Final = 65_536
READING: Final = frozenset({"GET", "HEAD"})
_WRITES_RECORDS: Final = re.compile(r"/api/v1/topics/[^/]+/records")
_SHOWS_RECORD: Final = re.compile(
    r"/api/v1/topics/[^/]+/(?:rejected/)?partitions/[^/]+/records/[^/]+/(?:headers|value)"
)
_ENDS_WITH_ID: Final = re.compile(r"/api/v1/topics/[^/]+/(?:schedules|ids)/.+", re.DOTALL)
CALLER: Final = "/api/v1/caller"
"""Path of the caller's own rights, open to every token: the page shows only the actions that the caller may take."""

DOCUMENT: Final = "/api/v1/openapi.json"
"""Path of the document that describes every path of the API."""

NO_SUCH_PATH: Final = f"no such path; GET {DOCUMENT} lists the paths"

_NOBODY: Final = "nobody"
_BROWSER: Final = "browser"
"""Name of the one pace that all clients of open files share."""

_LOOPBACK: Final = frozenset({LOCALHOST, "127.0.0.1", "::1"})
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+))(?::[0-9]{1,5})?")


class OpenFile(NamedTuple):
    """A small file and its headers that takes no token: a browser cannot send one with its first request.

    It holds no data of the cluster. Size, Host and pace are checked for it, too.
    """

    body: bytes
    headers: Mapping[str, str]


NO_FILES: Final[Mapping[str, OpenFile]] = {}
"""Files by path of a listener that has none."""


def role_for(method: str, path: str) -> Role:
    """Return the role that a request takes."""
    if method in READING:
        return Role.READ
    # Producers do not set policies, and operators write no records but controls.
    return Role.PRODUCE if _writes_record(method, path) else Role.OPERATE


def refuse_role(caller: Caller, needed: Role, thing: str = "it") -> None:
    """Raise a Refusal unless the caller has the role that a thing takes; the Refusal names both."""
    if not caller.may(needed):
        detail = f"this token may only {caller.role.value}; {thing} takes one of {needed.value}"
        raise Refusal(HTTPStatus.FORBIDDEN, detail)


def _writes_record(method: str, path: str) -> bool:
    return method == "POST" and _WRITES_RECORDS.fullmatch(path) is not None


class _Request:
    """The facts of a request for the answer and for the log."""

    def __init__(self, scope: Scope) -> None:
        self.id = secrets.token_hex(8)
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.client: str = (scope.get("client") or ("",))[0]
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.caller: Caller | None = None
        self.status = 0
        self.is_quiet = False
        """True for a request that the log needs only for debugging: one of a flood, or for an open file."""

    def header(self, name: bytes) -> bytes | None:
        """Return the only header of this name; raise a Refusal for several, since readers might choose differently."""
        found = [value for key, value in self.headers if key == name]
        if len(found) > 1:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"more than one header {name.decode()}")
        return found[0] if found else None


class Guard:
    """An ASGI application that checks requests to another one."""

    def __init__(
        self,
        app: ASGIApp,
        admin: AdminConfig,
        tokens: TokenFile,
        pace: Pace,
        open_files: Mapping[str, OpenFile] = NO_FILES,
    ) -> None:
        self._app = app
        self._open_files = open_files
        self._hosts = _LOOPBACK | {admin.host.lower(), *admin.allowed_hosts}
        self._tokens = tokens
        self._pace = pace
        self._log = structlog.get_logger()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"no answer to {scope['type']}")
        request = _Request(scope)
        answer = _Answer(request, send)
        limit = asyncio.timeout(ANSWERED_WITHIN_S)
        try:
            async with limit:
                _refuse_large(request, scope)
                _refuse_other_encodings(scope)
                self._refuse_other_hosts(request)
                file = self._open_files.get(request.path) if request.method in READING else None
                if file is not None:
                    await self._hand_out(file, request, answer)
                    return
                caller = self._admitted(request)
                body = await _body(request, receive)
                # The application sees HEAD as GET; _Answer leaves the body out.
                inner = {**scope, "method": "GET" if request.method == "HEAD" else request.method}
                inner["state"] = {**scope.get("state", {}), "request_id": request.id, "caller": caller}
                with bound_contextvars(request_id=request.id):
                    await self._app(inner, _once(body, receive), answer.send)
        except Refusal as refusal:
            await answer.problem(refusal.status, refusal.detail, refusal.headers)
        except _GoneError:
            pass
        except Exception:  # noqa: BLE001 - the log shows any error, and the caller must not see it
            if limit.expired():
                await answer.problem(HTTPStatus.REQUEST_TIMEOUT, "the request took too long", {"connection": "close"})
            else:
                self._log.exception("admin_request_failed", request_id=request.id)
                await answer.problem(HTTPStatus.INTERNAL_SERVER_ERROR, problems.INTERNAL)
        finally:
            self._audit(request)

    async def _hand_out(self, file: OpenFile, request: _Request, answer: "_Answer") -> None:
        request.is_quiet = True
        if wait_s := self._pace.wait_s(_BROWSER, KNOWN):
            raise _too_fast(wait_s)
        await answer.whole(HTTPStatus.OK, file.body, file.headers)

    def _admitted(self, request: _Request) -> Caller:
        caller = request.caller = self._authenticated(request)
        if wait_s := self._pace.wait_s(caller.name, KNOWN):
            raise _too_fast(wait_s)
        # The application passes over a line end at the end of a path; roles and the log would see another path.
        if request.path.endswith("\n") and not _ENDS_WITH_ID.fullmatch(request.path):
            raise Refusal(HTTPStatus.NOT_FOUND, NO_SUCH_PATH)
        if request.path == CALLER and request.method in READING:
            return caller
        # The headers of a record tell whether it takes the role operate: sidecar.http.api.records looks at them.
        if not (caller.role is Role.OPERATE and _writes_record(request.method, request.path)):
            refuse_role(caller, role_for(request.method, request.path))
        return caller

    def _refuse_other_hosts(self, request: _Request) -> None:
        match = _HOST.fullmatch((request.header(b"host") or b"").decode("latin-1"))
        if match is None or (match[1] or match[2]).lower() not in self._hosts:
            raise Refusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                "the request's Host is not one of this API; see admin.allowed_hosts",
            )

    def _authenticated(self, request: _Request) -> Caller:
        scheme, _, token = (request.header(b"authorization") or b"").partition(b" ")
        # Compare the token also with a wrong scheme, so that the duration reveals nothing.
        caller = self._tokens.caller(token.strip())
        if caller is not None and scheme.lower() == b"bearer":
            return caller
        if wait_s := self._pace.wait_s(_NOBODY, UNKNOWN):
            request.is_quiet = True
            raise _too_fast(wait_s)
        # The answer is the same for every path, so it does not reveal which paths exist.
        detail = f"no token that is known; send it as Authorization: Bearer TOKEN; then GET {DOCUMENT} lists the paths"
        raise Refusal(HTTPStatus.UNAUTHORIZED, detail, {"www-authenticate": "Bearer", "connection": "close"})

    def _audit(self, request: _Request) -> None:
        caller = request.caller
        is_question = caller is not None and request.method in READING and not _SHOWS_RECORD.fullmatch(request.path)
        is_quiet = request.is_quiet or is_question
        (self._log.debug if is_quiet else self._log.info)(
            "admin_request",
            role=caller.role.value if caller else _NOBODY,
            token=caller.name if caller else "",
            client=request.client,
            method=request.method,
            path=request.path,
            request_id=request.id,
            status=int(request.status),
        )


class _GoneError(Exception):
    """The caller disconnected before its request was complete."""


class _Answer:
    """Sends the answer of the application, with the headers that every answer has."""

    def __init__(self, request: _Request, send: Send) -> None:
        self._request = request
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._request.status = message["status"]
            own = [*problems.HEADERS, (b"x-request-id", self._request.id.encode())]
            message = {**message, "headers": [*message.get("headers", []), *own]}
        elif self._request.method == "HEAD":
            message = {**message, "body": b""}
        await self._send(message)

    async def problem(self, status: HTTPStatus, detail: str, headers: dict[str, str] | None = None) -> None:
        """Answer with a problem, unless an answer has begun: then the end of the connection tells the caller."""
        if self._request.status:
            return
        body = problems.body_of(status, detail, self._request.id)
        head = {"content-type": problems.MEDIA_TYPE, "content-length": str(len(body)), **(headers or {})}
        await self.whole(status, body, head)

    async def whole(self, status: HTTPStatus, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a whole answer at once."""
        start: dict[str, Any] = {"type": "http.response.start", "status": status.value}
        await self.send({**start, "headers": [(key.encode(), value.encode()) for key, value in headers.items()]})
        await self.send({"type": "http.response.body", "body": body})


def _refuse_large(request: _Request, scope: Scope) -> None:
    line = len(request.method) + len(scope.get("raw_path") or b"") + len(scope["query_string"])
    if line > MAX_REQUEST_LINE_BYTES:
        raise Refusal(HTTPStatus.REQUEST_URI_TOO_LONG, f"a request line has at most {MAX_REQUEST_LINE_BYTES} bytes")
    if sum(len(key) + len(value) + 4 for key, value in request.headers) > MAX_HEADER_BYTES:
        raise Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"headers have at most {MAX_HEADER_BYTES} bytes")


def _refuse_other_encodings(scope: Scope) -> None:
    """Raise a Refusal unless path and query are UTF-8.

    The server has replaced every other byte by U+FFFD, which would make one id of all ids that are not UTF-8.
    """
    for name, part in (("path", scope.get("raw_path") or b""), ("query", scope["query_string"])):
        try:
            unquote_to_bytes(part).decode()
        except UnicodeDecodeError:
            detail = f"the {name} is not UTF-8; percent-encode the bytes of text in UTF-8"
            raise Refusal(HTTPStatus.BAD_REQUEST, detail) from None


async def _body(request: _Request, receive: Receive) -> bytes:
    """Return the whole body; raise a Refusal as soon as it is too large."""
    too_large = Refusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {MAX_BODY_BYTES} bytes", {"connection": "close"}
    )
    declared = request.header(b"content-length") or b"0"
    if len(declared) > len(str(MAX_BODY_BYTES)) or not declared.isdigit() or int(declared) > MAX_BODY_BYTES:
        raise too_large
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise _GoneError
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise too_large
        if not message.get("more_body", False):
            return bytes(body)


def _once(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that gives the body at once, and then the caller's messages, which tell of its end."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


def _too_fast(wait_s: float) -> Refusal:
    return Refusal(
        HTTPStatus.TOO_MANY_REQUESTS, "too many requests a second", {"retry-after": str(max(1, math.ceil(wait_s)))}
    )

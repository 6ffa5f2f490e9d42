"""Client of the admin API: the methods of :class:`sidecar.operations.desk.Operations` that commands use, over HTTP."""

import json
import ssl
from base64 import b64encode
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlencode

from pydantic import ValidationError

from index.errors import ConfigError, DelayRouterError
from index.named.receipts import ControlOutcome, Matched
from sidecar import clock
from sidecar.config.units import format_instant
from sidecar.operations.asking.http_client import exchange, parts_of
from sidecar.operations.controls.orders import (
    WAIT_S,
    Cancelled,
    ControlOrder,
    NewRecord,
    QueryOrder,
    ReceiptAnswer,
    Written,
)
from sidecar.operations.status.answers import (
    Answer,
    IdAnswer,
    LookupAnswer,
    MatchingAnswer,
    PendingAnswer,
    SchedulesAnswer,
    StatusAnswer,
    TopicAnswer,
)
from sidecar.policies.policy import Scope, ScopeKind
from sidecar.policies.switches import SwitchKey, switch_of
from sidecar.policies.table import EffectiveValue

# Most commands do not use rejected records, so the modules are not imported at run time.
if TYPE_CHECKING:
    from sidecar.operations.finding.wanted import ScheduleFilter
    from sidecar.operations.rejected.listing import Position
    from sidecar.operations.rejected.redriving import Progress, Redrive
    from sidecar.operations.rejected.selection import RejectedSelection

PREFIX: Final = "/api/v1"
TIMEOUT_S: Final = 30.0
"""Timeout of a request; the API itself ends a call earlier."""

MAX_TOKEN_BYTES: Final = 4_096
AFTER: Final = "deliver-after"
_SHOWN: Final = 500
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_KINDS: Final = {ScopeKind.TOPIC: "topics", ScopeKind.TARGET: "targets"}
_WRONG_USE: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY})

A = TypeVar("A", bound=Answer)


def read_token(file: Path) -> str:
    """Return the token in a file of one line; raise ConfigError, without text of the file, when it holds no token."""
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"token file {file}: {error.strerror}") from None
    token = raw.strip()
    if not token or len(token) > MAX_TOKEN_BYTES or not token.isascii() or len(token.split()) > 1:
        raise ConfigError(f"token file {file}: one line with the token alone is wanted")
    return token.decode()


class ApiClient:
    """The operations of the router at ``url``; for one thread.

    Methods raise ConfigError, in the words of the router, for an impossible request, and DelayRouterError when the
    answer is not that of a router.
    """

    def __init__(self, url: str, token: str, ca_file: Path | None = None) -> None:
        parts = parts_of(url, f"--api {url}: write https://HOST:PORT")
        self._url, self._host = url, parts.hostname
        self._token = token
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            try:
                self._tls = ssl.create_default_context(cafile=ca_file)
            except OSError as error:
                raise ConfigError(f"--ca-file {ca_file}: {error}") from None

    @property
    def is_in_the_clear(self) -> bool:
        """True when the token travels over the network without encryption."""
        return self._tls is None and self._host not in _LOOPBACK

    def status(self, topic: str = "") -> StatusAnswer:
        """Answer ``Operations.status``; for one topic, the routers in the answer are those that serve it."""
        if not topic:
            return self._ask(StatusAnswer, "/topics")
        found = self._ask(TopicAnswer, f"/topics/{_quoted(topic)}")
        serving = {each.instance for each in found.partitions if each.instance}
        return StatusAnswer(topics=(found,), instances=tuple(sorted(serving)))

    def pending(self, topic: str) -> PendingAnswer:
        """Answer ``Operations.pending``."""
        return self._ask(PendingAnswer, f"/topics/{_quoted(topic)}/pending")

    def lookup(self, topic: str, partition: int, offset: int) -> LookupAnswer:
        """Answer ``Operations.lookup``."""
        return self._ask(LookupAnswer, f"/topics/{_quoted(topic)}/partitions/{partition}/records/{offset}")

    def find(self, topic: str, deliver_id: bytes) -> IdAnswer:
        """Answer ``Operations.find``."""
        return self._ask(IdAnswer, f"/topics/{_quoted(topic)}/ids/{quote(deliver_id.decode())}")

    def schedules(self, wanted: "ScheduleFilter", begin: str, most: int, upcoming: int = 0) -> SchedulesAnswer:
        """Answer ``Operations.schedules``."""
        asked: dict[str, object] = {
            "id": None if wanted.deliver_id is None else wanted.deliver_id.decode(),
            "due_from_ms": wanted.due_from_ms,
            "due_to_ms": wanted.due_to_ms,
            "target": wanted.target or None,
            "key": None if wanted.key is None else wanted.key.decode(),
            "recurring": "true" if wanted.recurring else None,
            "limit": most,
            "upcoming": upcoming or None,
            "from": begin or None,
        }
        return self._ask(SchedulesAnswer, _with_query(f"/topics/{_quoted(wanted.topic)}/schedules", asked))

    def cancel_or_move(
        self,
        topic: str,
        order: ControlOrder,
        wait_s: float = WAIT_S,  # noqa: ARG002 - a router waits as long as a call may take
    ) -> ReceiptAnswer:
        """Answer ``Operations.cancel_or_move``."""
        asked = {"if_due_ms": order.if_due_ms, "partition": order.partition}
        path = _with_query(f"/topics/{_quoted(topic)}/schedules/{quote(order.deliver_id.decode())}", asked)
        if order.moves_to is None:
            found = self._object("DELETE", path, "cancelled")
            return ReceiptAnswer(ControlOutcome.CANCELLED, _schedules(found["cancelled"]))
        header, value = order.moves_to
        from_ms = clock.now_ms() if header == AFTER else 0
        found = self._object("PATCH", path, "moved", "due_ms", body={"due_ms": from_ms + int(value)})
        return ReceiptAnswer(ControlOutcome.MOVED, _schedules(found["moved"]), found["due_ms"])

    def matching(self, topic: str, order: QueryOrder, begin: str = "") -> MatchingAnswer:
        """Answer ``Operations.matching``."""
        path = _with_query(f"/topics/{_quoted(topic)}/cancellations/dry-run", {"from": begin or None})
        return self._ask(MatchingAnswer, path, "POST", _predicate(order))

    def cancel_where(
        self,
        topic: str,
        order: QueryOrder,
        wait_s: float = WAIT_S,  # noqa: ARG002 - as above
    ) -> Matched:
        """Answer ``Operations.cancel_where``."""
        path = f"/topics/{_quoted(topic)}/cancellations"
        found = self._object("POST", path, "matched", "estimated", body=_predicate(order))
        return Matched(found["matched"], found["estimated"])

    def write_record(self, topic: str, record: NewRecord) -> Written:
        """Answer ``Operations.write_record``."""
        headers = [{"name": name, "value": _content(value)} for name, value in record.headers]
        body = {"key": _content(record.key), "value": _content(record.value), "headers": headers}
        keys = "partition", "offset", "due_ms", "targets"
        found = self._object("POST", f"/topics/{_quoted(topic)}/records", *keys, body=body)
        return Written(topic, *(found[key] for key in keys))

    def policies(self) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Answer ``Operations.policies``."""
        found = self._object("GET", "/policies", "policies", "unreadable")
        return found["policies"], found["unreadable"]

    def policy_changes(self) -> list[dict[str, Any]]:
        """Answer ``Operations.policy_changes``."""
        found: list[dict[str, Any]] = self._object("GET", "/policies/changes", "changes")["changes"]
        return found

    def effective(self, topic: str, target: str = "") -> dict[str, EffectiveValue]:
        """Answer ``Operations.effective``."""
        path = _with_query(f"/topics/{_quoted(topic)}/policy", {"target": target or None})
        found = self._object("GET", path, "values")
        # An older router does not tell which values are defaults.
        return {
            key: EffectiveValue(each["value"], each["origin"], each.get("is_default", False))
            for key, each in found["values"].items()
        }

    def change_policy(self, scope: Scope, values: Mapping[str, object], unset: Iterable[str] = ()) -> dict[str, Any]:
        """Answer ``Operations.change_policy`` (RFC 7396)."""
        body = {**dict.fromkeys(unset), **values}
        present: dict[str, Any] = self._object("PATCH", _path_of(scope), "values", body=body)["values"]
        return present

    def remove_policy(self, scope: Scope) -> None:
        """Answer ``Operations.remove_policy``."""
        self._request("DELETE", _path_of(scope))

    def switch(self, scope: Scope, key: SwitchKey, *, on: bool, until_ms: int | None = None, reason: str = "") -> None:
        """Answer ``Operations.switch``."""
        switch = switch_of(scope.kind, key, on=on)
        body = {"confirm": scope.name} if switch.needs_confirmation else {}
        if until_ms is not None:
            body["until"] = format_instant(until_ms)
        if reason:
            body["reason"] = reason
        self._request("POST", f"/{_KINDS[scope.kind]}/{_quoted(scope.name)}/{switch.verb}", body)

    def rejected(self, selection: "RejectedSelection", begin: "Position", most: int) -> dict[str, Any]:
        """Answer ``Operations.rejected``."""
        asked = {"code": sorted(selection.codes), "id": [each.decode() for each in sorted(selection.ids)]}
        asked.update({"limit": [str(most)], "from": [f"{begin[0]}/{begin[1]}"]})
        asked.update({key: [str(value)] for key, value in _times_of(selection).items()})
        path = f"/topics/{_quoted(selection.topic)}/rejected?{urlencode(asked, doseq=True)}"
        found: dict[str, Any] = self._request("GET", path)
        return found

    def redrive(self, order: "Redrive", on_progress: "Progress") -> dict[str, int]:  # noqa: ARG002 - one call, one answer
        """Let the router drive records again as ``Operations.redrive`` does, within the time and number of one call."""
        selection, changes = order.selection, order.changes
        body = {
            "codes": sorted(selection.codes),
            "ids": [each.decode() for each in sorted(selection.ids)],
            **_times_of(selection),
            "set_headers": [{"name": name, "value": value.decode()} for name, value in changes.put],
            "drop_headers": list(changes.drop),
            "max_redriven": order.most_redriven,
            "dry_run": order.dry_run,
            **({} if order.most is None else {"most": order.most}),
        }
        found = self._request("POST", f"/topics/{_quoted(selection.topic)}/rejected/redrive", body)
        return {key: value for key, value in found.items() if key != "dry_run"}

    def close(self) -> None:
        """Do nothing: each request has a connection of its own."""

    def _ask(self, shape: type[A], path: str, method: str = "GET", body: object = None) -> A:
        try:
            # A newer router may tell more than this version knows.
            return shape.model_validate(self._request(method, path, body), extra="ignore")
        except ValidationError:
            raise self._of_another_version() from None

    def _object(self, method: str, path: str, *keys: str, body: object = None) -> dict[str, Any]:
        """Return an answer that has these keys."""
        answer = self._request(method, path, body)
        if not isinstance(answer, dict) or not answer.keys() >= {*keys}:
            raise self._of_another_version()
        return answer

    def _of_another_version(self) -> DelayRouterError:
        return DelayRouterError(f"{self._url}: answers, but not as this version does; see --api")

    def _request(self, method: str, path: str, body: object = None) -> Any:
        code, raw = self._exchange(method, PREFIX + path, body)
        try:
            answer = json.loads(raw) if raw else None
        except ValueError:
            answer = None
        if code in {HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT} and (
            answer is not None or code == HTTPStatus.NO_CONTENT
        ):
            return answer
        detail = answer.get("detail") if isinstance(answer, dict) else None
        if not isinstance(detail, str):
            raise DelayRouterError(f"{self._url}: answers {code}, but not as the admin API does; see --api")
        message = f"{self._url}: {detail[:_SHOWN]}"
        raise (ConfigError if code in _WRONG_USE else DelayRouterError)(message)

    def _exchange(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        headers = {"authorization": f"Bearer {self._token}", "accept": "application/json"}
        if body is not None:
            headers["content-type"] = "application/json"
        return exchange(
            self._url,
            method,
            path,
            timeout_s=TIMEOUT_S,
            hint="is [admin] on there? Without --api Kafka is asked",
            tls=self._tls,
            body=None if body is None else json.dumps(body),
            headers=headers,
        )


def _path_of(scope: Scope) -> str:
    return f"/policies/{_KINDS[scope.kind]}/{_quoted(scope.name)}" if scope.kind in _KINDS else "/policies/default"


def _with_query(path: str, asked: Mapping[str, object]) -> str:
    """Return the path with the parameters that are not None."""
    given = urlencode({key: value for key, value in asked.items() if value is not None})
    return f"{path}?{given}" if given else path


def _predicate(order: QueryOrder) -> dict[str, object]:
    """Return a query as the API takes it."""
    where, header = order.where, order.where.header
    asked: dict[str, object] = {
        "target": where.target or None,
        "due_from_ms": where.due_from_ms,
        "due_to_ms": where.due_to_ms,
        "id_prefix": None if where.id_prefix is None else where.id_prefix.decode(),
        "header": None if header is None else {"name": header.name, "value": header.value.decode()},
        "partition": order.partition,
    }
    return {name: value for name, value in asked.items() if value is not None}


def _content(raw: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as the API takes them: text, or base 64 for bytes that are no text."""
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(raw or b"").decode()}


def _schedules(told: Iterable[Mapping[str, int]]) -> tuple[Cancelled, ...]:
    return tuple(Cancelled(each["partition"], each["offset"], each["due_ms"]) for each in told)


def _times_of(selection: "RejectedSelection") -> dict[str, int]:
    times = {"since_ms": selection.since_ms, "until_ms": selection.until_ms}
    return {key: value for key, value in times.items() if value is not None}


def _quoted(name: str) -> str:
    return quote(name, safe="")

"""Listening sockets that always have room for one more connection.

Any client can block a listener that refuses connections once its places are taken: it opens connections and sends
nothing. An orchestrator that asks for ``/livez`` then takes a healthy router for a dead one. This listener accepts
every new connection and ends an old one instead: of the client that holds too many, or of the client that holds most,
the oldest idle connection, or else the oldest. So a client takes places from itself alone, and a client that asks as
soon as it is connected has its answer before its connection is the oldest, even in a storm of connections.

This happens where connections are accepted, which is before TLS: handshakes that never end hold places, too.

Rejected: uvicorn's ``limit_concurrency``. It counts idle connections, too, and answers 503 above the limit.
"""

import ipaddress
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

from index.errors import ConfigError
from sidecar.config.listeners import Listener
from sidecar.config.sources import ENV_PREFIX

BACKLOG: Final = 512
"""Connections that the operating system keeps until they are accepted."""

ACCEPTED_AT_ONCE: Final = 16
"""Connections that the event loop accepts between two reads of the accepted ones; far below the places of a client."""

IDLE_AFTER_S: Final = 1.0
"""Age from which a connection without a request counts as idle; a younger one may not have asked yet."""


class ConnectionLimits(NamedTuple):
    """Most connections of a listener, in all and of one client (an IPv4 address, or an IPv6 network /64)."""

    connections: int
    of_one_client: int


class _Accepted:
    def __init__(self, connection: socket.socket, client: str) -> None:
        self.connection = connection
        self.client = client
        self.began_s = time.monotonic()
        self.ended = False

    @property
    def is_open(self) -> bool:
        return self.connection.fileno() != -1


class ListeningSocket(socket.socket):
    """A listening socket of one event loop; `busy` returns the descriptors of connections with a request under way."""

    def __init__(self, family: int, kind: int, protocol: int, places: ConnectionLimits) -> None:
        super().__init__(family, kind, protocol)
        self.busy: Callable[[], Collection[int]] = frozenset
        self._places = places
        self._accepted: list[_Accepted] = []

    def listen(self, backlog: int = BACKLOG, /) -> None:
        """Listen with at least ``BACKLOG``; the event loop asks for no more than it accepts at once."""
        super().listen(max(backlog, BACKLOG))

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection, and end another one when no place is left."""
        connection, address = super().accept()
        self._accepted = [each for each in self._accepted if each.is_open]
        self._accepted.append(_Accepted(connection, client_of(address)))
        self._make_room()
        return connection, address

    def _make_room(self) -> None:
        *others, newest = [each for each in self._accepted if not each.ended]
        held = Counter(each.client for each in others)
        if held[newest.client] >= self._places.of_one_client:
            client = newest.client
        elif len(others) >= self._places.connections:
            # Among clients with equal numbers, take the first one.
            client = max(held, key=lambda each: held[each])
        else:
            return
        busy = self.busy()
        oldest_first = [each for each in others if each.client == client]
        before_s = newest.began_s - IDLE_AFTER_S
        idle = (each for each in oldest_first if each.began_s < before_s and each.connection.fileno() not in busy)
        leaves = next(idle, oldest_first[0])
        leaves.ended = True
        try:
            # The event loop then reads the end of the connection and closes it.
            leaves.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            # The client has ended the connection already.
            return


def client_of(address: Any) -> str:
    """Return the client of a peer address; all addresses of an IPv6 network /64 belong to one client."""
    if not isinstance(address, tuple):
        return ""
    host = str(address[0]).partition("%")[0]
    parsed = ipaddress.ip_address(host)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(parsed.ipv4_mapped or ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return host


def bind(config: Listener, section: str, places: ConnectionLimits) -> ListeningSocket:
    """Return a listening socket for the address of a section of the configuration; raise ConfigError without one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = ListeningSocket(family, kind, protocol, places)
        try:
            # A restart then need not wait for the old connections to leave TIME_WAIT.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen()
        except OSError:
            bound.close()
            raise
    except OSError as error:
        remedy = f"choose another address: listen under [{section}], or {ENV_PREFIX}{section.upper()}__LISTEN"
        raise ConfigError(f"{section}.listen: {config.listen}: {error.strerror or error}; {remedy}") from None
    return bound

"""Listening sockets that always have room for one more connection.

A listener that refuses whoever comes after the last place can be shut by anybody who opens connections and says
nothing, and then an orchestrator that asks for ``/livez`` takes a healthy router for a dead one. Here the newcomer is
always let in, and a connection that is there already has to go: of the client that holds too many, or of the one that
holds most, the oldest one that does nothing, or else the oldest. So a client takes places from itself alone, and who
asks as soon as it is connected has its answer before its turn to leave comes, even in a storm of connections.

It is done where connections are accepted, which is before TLS: handshakes that never end hold places too.

Rejected: uvicorn's ``limit_concurrency``. It counts connections, idle ones too, and answers 503 from then on.
"""

import ipaddress
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

from index.errors import ConfigError
from sidecar.config.listeners import Listener

BACKLOG: Final = 512
"""Connections that the system keeps until they are accepted."""

ACCEPTED_AT_ONCE: Final = 16
"""By the event loop, between two looks at what those have sent that are there; far below the places of one client."""

IDLE_AFTER_S: Final = 1.0
"""From its beginning on; a younger connection has not asked yet."""


class Places(NamedTuple):
    """How many connections a listener keeps: all together, and of one client (an address, or an IPv6 network /64)."""

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
    """Used by one event loop; `busy` tells the file descriptors of connections with a request under way."""

    def __init__(self, family: int, kind: int, protocol: int, places: Places) -> None:
        super().__init__(family, kind, protocol)
        self.busy: Callable[[], Collection[int]] = frozenset
        self._places = places
        self._accepted: list[_Accepted] = []

    def listen(self, backlog: int = BACKLOG, /) -> None:
        """As any socket; the event loop would have the system keep no more than it accepts at once."""
        super().listen(max(backlog, BACKLOG))

    def accept(self) -> tuple[socket.socket, Any]:
        """As any socket, and make room for it."""
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
            # Among equals the one that came first.
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
            # The event loop reads the end of it, and closes it.
            leaves.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            # The other side was first.
            return


def client_of(address: Any) -> str:
    """Whom an address of a peer belongs to; who has one address of an IPv6 network has all of them."""
    if not isinstance(address, tuple):
        return ""
    host = str(address[0]).partition("%")[0]
    parsed = ipaddress.ip_address(host)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(parsed.ipv4_mapped or ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return host


def bind(config: Listener, section: str, places: Places) -> ListeningSocket:
    """A listening socket for the address of a section of the configuration; ConfigError when it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = ListeningSocket(family, kind, protocol, places)
        try:
            # So that a restart need not wait for the old connections to leave TIME_WAIT.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen()
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ConfigError(
            f"{section}.listen: {config.listen}: {error.strerror or error}; choose another address"
        ) from None
    return bound

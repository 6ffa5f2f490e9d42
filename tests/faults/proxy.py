"""Runs a TCP proxy in front of one broker that knows Kafka's framing, so that a single answer can be lost.

    with Proxy(upstream_port) as proxy:           # clients connect to proxy.port
        proxy.delay_s = 0.2                       # each direction
        proxy.lose_answers({ApiKey.END_TXN}, 1)   # the broker has done it, and the client never hears
        proxy.stray(ApiKey.END_TXN, Moment.AFTER_PRODUCE)  # one is overtaken by its own repetition
        proxy.cut()                               # every connection is reset
        proxy.cut_quietest()                      # the one that has been idle for the longest time is reset
        proxy.fall_silent()                       # connections stay open and nothing passes
        proxy.fall_silent(Way.ANSWERS)            # the broker hears all, and is not heard
        proxy.heal()

Requests and answers are ``int32 length`` and that many bytes; a request begins with its api key, version and
correlation id, an answer with the correlation id of its request. The proxy reads nothing else, except whether an EndTxn
is to commit. Each fault counts its effects: a fault without an effect proves nothing, and its test has to check that.
"""

import asyncio
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, IntEnum
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
LONGEST_FRAME_BYTES = 256 * 1_048_576
_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_ANSWER = struct.Struct(">i")
_ERROR = struct.Struct(">h")

_HEAD_BYTES = 160
"""Bytes of a request that contain the transactional id of its producer, and no record."""


class ApiKey(IntEnum):
    """The requests whose answers are lost in tests."""

    PRODUCE = 0
    FETCH = 1
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26


class Moment(Enum):
    """The moment when a stray request reaches the broker: in the transaction after its own one."""

    BEFORE_ADD_PARTITIONS = "in front of its AddPartitionsToTxn"
    AFTER_ADD_PARTITIONS = "once partitions have been added"
    AFTER_PRODUCE = "once records have been written"
    BEFORE_END = "in front of its EndTxn"
    NEVER = "never"


class Way(Enum):
    """A direction of a line, from the client's side."""

    REQUESTS = "to the broker"
    ANSWERS = "to the client"


_REQUESTS = {Moment.BEFORE_ADD_PARTITIONS: ApiKey.ADD_PARTITIONS_TO_TXN, Moment.BEFORE_END: ApiKey.END_TXN}
_ANSWERS = {Moment.AFTER_ADD_PARTITIONS: ApiKey.ADD_PARTITIONS_TO_TXN, Moment.AFTER_PRODUCE: ApiKey.PRODUCE}


@dataclass(slots=True)
class _Stray:
    """A request to keep, with its connection, until a transaction has ended and its moment comes."""

    key: ApiKey
    moment: Moment
    commits: bool | None
    frame: bytes | None = None
    has_ended: bool = False

    def is_wanted(self, key: int, frame: bytes) -> bool:
        # EndTxn of version 1, which librdkafka sends, ends with the byte that distinguishes commit from abort.
        is_meant = self.commits is None or frame[-1] == self.commits
        return self.frame is None and key == self.key and is_meant


class Proxy:
    """One listening port with one broker behind it; runs in its own thread."""

    def __init__(self, upstream_port: int, port: int) -> None:
        self.port = port
        self.delay_s = 0.0
        self.refusing = False
        self.watched = b""
        self.effects: Counter[str] = Counter()
        self._upstream_port = upstream_port
        self._losing: Counter[ApiKey] = Counter()
        self._stray: _Stray | None = None
        self._connections: set[_Connection] = set()
        self._open = {way: asyncio.Event() for way in Way}
        for event in self._open.values():
            event.set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{port}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def lose_answers(self, keys: Collection[ApiKey], count: int) -> None:
        """Lose the next ``count`` answers to each of these requests, together with their connections."""
        self._losing.update(dict.fromkeys(keys, count))

    def stray(self, key: ApiKey, moment: Moment, *, commits: bool | None = None) -> None:
        """Keep the next such request and cut its connection; the broker gets it later, over another connection.

        ``commits`` restricts EndTxn to requests that commit, or abort. One at a time: ``is_astray`` tells whether the
        request is still to come. Works for one transactional producer behind the proxy; of several, for the one whose
        transactional id contains ``watched``.
        """
        self._stray = _Stray(key, moment, commits)

    @property
    def is_astray(self) -> bool:
        """Says whether the last stray request has not been kept, or not been delivered yet."""
        return self._stray is not None

    @property
    def quiet_s(self) -> float:
        """The seconds since the last frame of the quietest open connection, from either side."""
        now_s = time.monotonic()
        return max((now_s - each.passed_s for each in list(self._connections)), default=0.0)

    def cut(self) -> None:
        """Reset every open connection."""

        def reset() -> None:
            for connection in list(self._connections):
                self.effects["cut"] += 1
                connection.reset()

        self._loop.call_soon_threadsafe(reset)

    def cut_quietest(self) -> None:
        """Reset the connection that has been idle for the longest time, as a broker does with idle ones."""

        def reset() -> None:
            self.effects["cut quietest"] += 1
            min(self._connections, key=lambda each: each.passed_s).reset()

        self._loop.call_soon_threadsafe(reset)

    def fall_silent(self, *ways: Way) -> None:
        """Hold back all frames, in both directions or the given one, until ``heal``."""
        for way in ways or Way:
            self._loop.call_soon_threadsafe(self._open[way].clear)

    def heal(self) -> None:
        """End all faults."""
        self.delay_s, self.refusing = 0.0, False
        self.watched = b""
        self._losing.clear()
        self._stray = None
        for event in self._open.values():
            self._loop.call_soon_threadsafe(event.set)

    def is_to_lose(self, key: int) -> bool:
        """Say whether to lose the answer to such a request; each yes counts."""
        wanted = next((each for each in self._losing if each == key and self._losing[each] > 0), None)
        if wanted is None:
            return False
        self._losing[wanted] -= 1
        self.effects[f"lost answer to {wanted.name}"] += 1
        return True

    async def keeps(self, key: int, frame: bytes) -> bool:
        """Say whether a request is kept, so that its connection is to be cut; maybe deliver the one kept before."""
        stray = self._stray
        if stray is None or self.watched not in frame[:_HEAD_BYTES]:
            return False
        if stray.is_wanted(key, frame):
            stray.frame = frame
            self.effects[f"kept {stray.key.name}"] += 1
            return True
        if stray.has_ended and _REQUESTS.get(stray.moment) == key:
            await self._deliver(stray)
        return False

    async def answered(self, key: int, head: bytes) -> None:
        """Note the answer to a request, and deliver the kept request if its moment has come."""
        stray = self._stray
        if stray is None or stray.frame is None or self.watched not in head:
            return
        if stray.has_ended and _ANSWERS.get(stray.moment) == key:
            await self._deliver(stray)
        elif key == ApiKey.END_TXN:
            stray.has_ended = True
            if stray.moment is Moment.NEVER:
                self._stray = None

    async def _deliver(self, stray: _Stray) -> None:
        assert stray.frame is not None
        self._stray = None
        reader, writer = await asyncio.open_connection(HOST, self._upstream_port)
        writer.write(_LENGTH.pack(len(stray.frame)) + stray.frame)
        answer = await _frame(reader)
        writer.close()
        # The error is the last field in the answer to an EndTxn.
        accepted = stray.key is ApiKey.END_TXN and answer is not None and _ERROR.unpack(answer[-2:]) == (0,)
        self.effects[f"delivered {stray.key.name}"] += 1
        self.effects[f"accepted {stray.key.name}"] += accepted

    async def hold(self, arrived_s: float, way: Way) -> None:
        """Hold a frame for as long as the faults demand; ``arrived_s`` is by the clock of the loop."""
        left_s = arrived_s + self.delay_s - self._loop.time() if self.delay_s else 0.0
        if left_s > 0:
            self.effects["delayed"] += 1
            await asyncio.sleep(left_s)
        if not self._open[way].is_set():
            self.effects["held in silence"] += 1
            self.effects[f"held {way.value}"] += 1
            await self._open[way].wait()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, self.port)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            self.effects["refused"] += 1
            writer.transport.abort()
            return
        try:
            upstream = await asyncio.open_connection(HOST, self._upstream_port)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection(self, (reader, writer), upstream)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    async def _close(self) -> None:
        self._server.close()
        # A client that was accepted a moment ago is not in the list of connections yet.
        await asyncio.sleep(0.05)
        for connection in list(self._connections):
            connection.reset()
        await asyncio.sleep(0.05)


_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Connection:
    """A client's connection and the matching one to the broker."""

    def __init__(self, proxy: Proxy, client: _Stream, broker: _Stream) -> None:
        self.passed_s = time.monotonic()
        self._proxy = proxy
        self._client = client
        self._broker = broker
        self._asked: dict[int, tuple[int, bytes]] = {}
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Pass frames both ways until either side ends, or an answer is lost."""
        to_broker: _Frames = asyncio.Queue()
        to_client: _Frames = asyncio.Queue()
        ways = [
            asyncio.create_task(way)
            for way in (
                self._requests(to_broker),
                self._answers(to_client),
                self._pass_on(to_broker, self._broker[1], Way.REQUESTS),
                self._pass_on(to_client, self._client[1], Way.ANSWERS),
            )
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self.reset()

    def reset(self) -> None:
        """Reset both connections."""
        for _, writer in (self._client, self._broker):
            raw: socket.socket | None = writer.get_extra_info("socket")
            if raw is not None:
                with suppress(OSError):
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _requests(self, frames: "_Frames") -> None:
        while (frame := await _frame(self._client[0])) is not None:
            key, _, correlation_id = _REQUEST.unpack_from(frame)
            if await self._proxy.keeps(key, frame):
                return
            self._asked[correlation_id] = key, frame[:_HEAD_BYTES]
            frames.put_nowait((self._loop.time(), frame))

    async def _answers(self, frames: "_Frames") -> None:
        while (frame := await _frame(self._broker[0])) is not None:
            (correlation_id,) = _ANSWER.unpack_from(frame)
            key, head = self._asked.pop(correlation_id, (-1, b""))
            await self._proxy.answered(key, head)
            if self._proxy.is_to_lose(key):
                return
            frames.put_nowait((self._loop.time(), frame))

    async def _pass_on(self, frames: "_Frames", writer: asyncio.StreamWriter, way: Way) -> None:
        while True:
            arrived_s, frame = await frames.get()
            self.passed_s = time.monotonic()
            await self._proxy.hold(arrived_s, way)
            writer.write(_LENGTH.pack(len(frame)) + frame)
            with suppress(OSError):
                await writer.drain()


_Frames = asyncio.Queue[tuple[float, bytes]]
"""Frames with the time of their arrival; many are under way at once, as on a long line with much bandwidth."""


async def _frame(reader: asyncio.StreamReader) -> bytes | None:
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if not 0 <= length <= LONGEST_FRAME_BYTES:
            raise ValueError(f"a frame of {length} bytes: this is not Kafka's protocol")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, OSError):
        return None

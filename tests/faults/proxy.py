"""A TCP proxy in front of one broker that knows Kafka's framing, so that a single answer can be lost.

    with Proxy(upstream_port) as proxy:          # clients connect to proxy.port
        proxy.delay_s = 0.2                      # each direction
        proxy.lose_answers({ApiKey.END_TXN}, 1)  # the broker has done it, and the client never hears
        proxy.cut()                              # every connection is reset
        proxy.fall_silent()                      # connections stay open and nothing passes
        proxy.heal()

Requests and answers are ``int32 length`` and that many bytes; a request begins with its api key, version and
correlation id, an answer with the correlation id of its request. Nothing else is looked at. Each fault counts its
effects: one that had none proves nothing, and the test that uses it has to say so.
"""

import asyncio
import socket
import struct
import threading
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from enum import IntEnum
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
LONGEST_FRAME_BYTES = 256 * 1_048_576
_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_ANSWER = struct.Struct(">i")


class ApiKey(IntEnum):
    """The requests whose answers are lost in tests."""

    PRODUCE = 0
    FETCH = 1
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26


class Proxy:
    """One listening port, one broker behind it; runs in a thread of its own."""

    def __init__(self, upstream_port: int, port: int) -> None:
        self.port = port
        self.delay_s = 0.0
        self.refusing = False
        self.effects: Counter[str] = Counter()
        self._upstream_port = upstream_port
        self._losing: Counter[ApiKey] = Counter()
        self._connections: set[_Connection] = set()
        self._speaking = asyncio.Event()
        self._speaking.set()
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
        """Let the next ``count`` answers to each of these requests get lost, with the connection they were on."""
        self._losing.update(dict.fromkeys(keys, count))

    def cut(self) -> None:
        """Reset every connection that is open."""

        def reset() -> None:
            for connection in list(self._connections):
                self.effects["cut"] += 1
                connection.reset()

        self._loop.call_soon_threadsafe(reset)

    def fall_silent(self) -> None:
        """Keep back everything, in both directions, until it is healed."""
        self._loop.call_soon_threadsafe(self._speaking.clear)

    def heal(self) -> None:
        """No more faults."""
        self.delay_s, self.refusing = 0.0, False
        self._losing.clear()
        self._loop.call_soon_threadsafe(self._speaking.set)

    def is_to_lose(self, key: int) -> bool:
        """Whether the answer to such a request is to be lost; says yes as often as was asked for."""
        wanted = next((each for each in self._losing if each == key and self._losing[each] > 0), None)
        if wanted is None:
            return False
        self._losing[wanted] -= 1
        self.effects[f"lost answer to {wanted.name}"] += 1
        return True

    async def hold(self, arrived_s: float) -> None:
        """Keep a frame for as long as the faults say; ``arrived_s`` is by the clock of the loop."""
        left_s = arrived_s + self.delay_s - self._loop.time() if self.delay_s else 0.0
        if left_s > 0:
            self.effects["delayed"] += 1
            await asyncio.sleep(left_s)
        if not self._speaking.is_set():
            self.effects["held in silence"] += 1
            await self._speaking.wait()

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
        for connection in list(self._connections):
            connection.reset()
        await asyncio.sleep(0)


_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Connection:
    """A client's connection and the one to the broker that belongs to it."""

    def __init__(self, proxy: Proxy, client: _Stream, broker: _Stream) -> None:
        self._proxy = proxy
        self._client = client
        self._broker = broker
        self._asked: dict[int, int] = {}
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
                self._pass_on(to_broker, self._broker[1]),
                self._pass_on(to_client, self._client[1]),
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
        """End both connections without a farewell."""
        for _, writer in (self._client, self._broker):
            raw: socket.socket | None = writer.get_extra_info("socket")
            if raw is not None:
                with suppress(OSError):
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _requests(self, frames: "_Frames") -> None:
        while (frame := await _frame(self._client[0])) is not None:
            key, _, correlation_id = _REQUEST.unpack_from(frame)
            self._asked[correlation_id] = key
            frames.put_nowait((self._loop.time(), frame))

    async def _answers(self, frames: "_Frames") -> None:
        while (frame := await _frame(self._broker[0])) is not None:
            (correlation_id,) = _ANSWER.unpack_from(frame)
            if self._proxy.is_to_lose(self._asked.pop(correlation_id, -1)):
                return
            frames.put_nowait((self._loop.time(), frame))

    async def _pass_on(self, frames: "_Frames", writer: asyncio.StreamWriter) -> None:
        while True:
            arrived_s, frame = await frames.get()
            await self._proxy.hold(arrived_s)
            writer.write(_LENGTH.pack(len(frame)) + frame)
            with suppress(OSError):
                await writer.drain()


_Frames = asyncio.Queue[tuple[float, bytes]]
"""Frames with the time of their arrival: many are under way at once, as on a line that is long and not narrow."""


async def _frame(reader: asyncio.StreamReader) -> bytes | None:
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if not 0 <= length <= LONGEST_FRAME_BYTES:
            raise ValueError(f"a frame of {length} bytes: this is not Kafka's protocol")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, OSError):
        return None

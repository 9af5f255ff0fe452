"""A small TCP proxy on 127.0.0.1 that can cut, delay and swallow what flows between a client and a broker."""

from __future__ import annotations

import asyncio
import contextlib
from threading import Thread
from types import TracebackType
from typing import Self


class Proxy:
    """Forwards `port` to `target`. Its switches hold for connections that are open and for new ones:

    `refusing` closes new connections at once; `swallowing` reads what the broker answers and drops it (to the client a
    half-open connection); `delay` is in seconds, each way.
    """

    def __init__(self, port: int, target: int) -> None:
        self.port, self.target = port, target
        self.refusing = self.swallowing = False
        self.delay = 0.0
        self.swallowed = 0  # bytes
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = Thread(target=self._loop.run_forever, name="tcp-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        listening = asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Close every open connection; the client may come again unless `refusing`."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(10)

    async def _cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _close(self) -> None:
        self.refusing = True
        # A server that closes while it accepts a connection leaves that one open, so it closes when there is none.
        while running := asyncio.all_tasks() - {asyncio.current_task()}:
            await self._cut()
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        self._server.close()
        await asyncio.sleep(0)  # an aborted transport closes its socket in the loop's next turn

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self.refusing:
                raise ConnectionRefusedError
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(other_writer)
        for source, sink, answers in ((reader, other_writer, False), (other_reader, writer, True)):
            task = self._loop.create_task(self._pump(source, sink, answers))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if self.delay:
                    await asyncio.sleep(self.delay)
                if answers and self.swallowing:
                    self.swallowed += len(data)
                    continue
                sink.write(data)
                await sink.drain()
        sink.transport.abort()
        self._writers.discard(sink)

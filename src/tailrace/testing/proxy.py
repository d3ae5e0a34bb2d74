"""A TCP proxy that breaks connections in the ways that networks do.

It listens on a port of its own and passes every connection on to one target. An event loop in a thread of its own
moves the bytes; the methods may be called from any thread and return once the fault is in place:

- `cut` resets every connection and every new one, until `heal`.
- `stall` stops the bytes of one or both directions while the connections stay open; nothing is lost, it comes later.
- `half_open` makes one side believe that its connections live while the other side's were reset. What the believer
  sends vanishes. New connections pass: that is how the believer gets on once it notices.
- `heal` ends all faults. Stalled bytes flow again; half-open connections are reset, as the first packet that gets
  through would do.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Literal

from tailrace.testing.ports import free_port

Direction = Literal["up", "down", "both"]  # up: from the client to the target
End = Literal["client", "target"]

WRITE_BUFFER_BYTES: Final = 4 << 20  # per direction and connection; beyond it the sender waits
CONTROL_TIMEOUT_S: Final = 10.0
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class Proxy:
    """Passes connections on to `target`. Start it with `with`, and connect to `port`."""

    def __init__(self, target: tuple[str, int], port: int | None = None) -> None:
        self.target = target
        self.port = port or free_port()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"proxy {self.port}", daemon=True)
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self._cut = False
        self._stalled: frozenset[End] = frozenset()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections pass now, half-open ones included."""
        return len(self._links)

    def __enter__(self) -> Proxy:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(CONTROL_TIMEOUT_S)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(CONTROL_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CONTROL_TIMEOUT_S)
        self._loop.close()

    # ---- faults

    def cut(self) -> None:
        self._do(self._cut_now)

    def stall(self, direction: Direction = "both") -> None:
        senders: dict[Direction, frozenset[End]] = {
            "up": frozenset({"client"}),
            "down": frozenset({"target"}),
            "both": frozenset({"client", "target"}),
        }
        self._do(lambda: self._stall_now(senders[direction]))

    def half_open(self, believer: End = "client") -> None:
        self._do(lambda: self._half_open_now(believer))

    def heal(self) -> None:
        self._do(self._heal_now)

    # ---- the loop's side

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _do(self, act: Callable[[], None]) -> None:
        done: Future[None] = Future()

        def run() -> None:
            try:
                act()
            except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
                done.set_exception(error)
            else:
                done.set_result(None)

        self._loop.call_soon_threadsafe(run)
        done.result(CONTROL_TIMEOUT_S)

    async def _listen(self) -> None:
        self._server = await self._loop.create_server(lambda: _End(_Link(self)), "127.0.0.1", self.port)

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in list(self._links):
            link.reset()
        pending = asyncio.all_tasks(self._loop) - {asyncio.current_task(self._loop)}
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await asyncio.sleep(0)  # the transports' last callbacks

    def _cut_now(self) -> None:
        self._cut = True
        for link in list(self._links):
            link.reset()

    def _stall_now(self, senders: frozenset[End]) -> None:
        self._stalled = senders
        for link in self._links:
            link.adjust()

    def _half_open_now(self, believer: End) -> None:
        for link in list(self._links):
            link.half_open(believer)

    def _heal_now(self) -> None:
        self._cut = False
        self._stalled = frozenset()
        for link in list(self._links):
            if link.believer is not None:
                link.reset()
            else:
                link.adjust()


class _Link:
    """One connection through the proxy: the client's end and the target's."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.client: _End | None = None
        self.target: _End | None = None
        self.believer: End | None = None
        self._connecting: asyncio.Task[None] | None = None

    def accepted(self, client: _End) -> None:
        self.client = client
        self.proxy._links.add(self)
        if self.proxy._cut:
            self.reset()
            return
        client.hold()  # until there is somewhere to pass its bytes to
        self._connecting = self.proxy._loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await self.proxy._loop.create_connection(lambda: _End(self), *self.proxy.target)
        except OSError:
            self.reset()  # the target is not there: its client sees the same

    def connected(self, target: _End) -> None:
        self.target = target
        if self.client is None or self.client.transport.is_closing():
            target.reset()
            return
        self.client.peer, target.peer = target, self.client
        self.client.release()
        self.adjust()

    def adjust(self) -> None:
        for end, name in ((self.client, "client"), (self.target, "target")):
            if end is not None:
                end.stall(name in self.proxy._stalled)

    def half_open(self, believer: End) -> None:
        """The other end is reset; the believer's bytes are read and dropped."""
        stays, goes = (self.client, self.target) if believer == "client" else (self.target, self.client)
        if stays is None or goes is None or self.believer is not None:
            return
        self.believer = believer
        stays.peer = None
        goes.peer = None
        stays.stall(False)
        goes.reset()

    def ended(self, end: _End) -> None:
        """One end closed: so does the other, after what is still on its way, unless it must not know."""
        other = self.target if end is self.client else self.client
        if end.peer is not None:
            end.peer.close()
        if other is None or other.transport.is_closing():
            self.proxy._links.discard(self)

    def reset(self) -> None:
        for end in (self.client, self.target):
            if end is not None:
                end.peer = None
                end.reset()
        if self._connecting is not None:
            self._connecting.cancel()
        self.proxy._links.discard(self)


class _End(asyncio.Protocol):
    """One socket of a link. It reads unless it is stalled or its peer cannot take more."""

    transport: asyncio.Transport

    def __init__(self, link: _Link) -> None:
        self.link = link
        self.peer: _End | None = None
        self._held = 0
        self._stalled = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if self.link.client is None:
            self.link.accepted(self)
        else:
            self.link.connected(self)

    def data_received(self, data: bytes) -> None:
        if self.peer is not None:
            self.peer.transport.write(data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.link.ended(self)

    def pause_writing(self) -> None:
        if self.peer is not None:
            self.peer.hold()

    def resume_writing(self) -> None:
        if self.peer is not None:
            self.peer.release()

    def stall(self, stalled: bool) -> None:
        if stalled != self._stalled:
            self._stalled = stalled
            if stalled:
                self.hold()
            else:
                self.release()

    def hold(self) -> None:
        self._held += 1
        if self._held == 1 and not self.transport.is_closing():
            self.transport.pause_reading()

    def release(self) -> None:
        self._held -= 1
        if self._held == 0 and not self.transport.is_closing():
            self.transport.resume_reading()

    def close(self) -> None:
        self.transport.close()

    def reset(self) -> None:
        if not self.transport.is_closing():
            raw = self.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.transport.abort()

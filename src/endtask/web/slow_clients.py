"""A time limit for the head of a request, which uvicorn does not have."""

from __future__ import annotations

import asyncio
import json

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0


class ImpatientProtocol(H11Protocol):
    """HTTP/1.1 that answers 408 and closes if the head of a request takes too long to arrive."""

    head_seconds = HEAD_SECONDS
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Read data; wait for the rest of a head that is not complete."""
        waits_already = self._deadline is not None
        super().data_received(data)
        if not self._waits_for_head():
            self._forget()
        elif not waits_already:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._forget()
        super().connection_lost(exc)

    def _waits_for_head(self) -> bool:
        return self.conn.their_state is h11.IDLE and not self.transport.is_closing()

    def _wait_for_head(self) -> None:
        self._deadline = self.loop.call_later(self.head_seconds, self._give_up)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        """Answer 408; a connection on which nothing was sent is closed without an answer."""
        self._deadline = None
        if not self._waits_for_head():
            return
        if self.conn.trailing_data[0]:
            content = json.dumps({"detail": "the request took too long to arrive"}).encode()
            head = f"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
            self.transport.write(f"{head}\r\nconnection: close\r\n\r\n".encode() + content)
        self.transport.close()

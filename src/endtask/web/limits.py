"""Limits of requests: how large they may be and how long they may take to arrive."""

from __future__ import annotations

import asyncio
import time

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from endtask.web.security import refusal

LARGEST_REQUEST = 1_000_000
"""Bytes of a request that is no upload."""
REQUEST_SECONDS = 10.0
"""Time for a request that is no upload to arrive."""
PAUSE_SECONDS = 20.0
"""Time between two parts of an upload."""
_CLOSE = {"connection": "close"}


class Limits:
    """Reads a request whole before the app sees it; only uploads, whose path is given, reach the app part by part."""

    def __init__(
        self,
        app: ASGIApp,
        upload_path: str,
        largest_upload: int,
        largest: int = LARGEST_REQUEST,
        seconds: float = REQUEST_SECONDS,
        pause: float = PAUSE_SECONDS,
    ) -> None:
        self._app, self._upload_path, self._largest_upload = app, upload_path, largest_upload
        self._largest, self._seconds, self._pause = largest, seconds, pause

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        upload = scope["path"] == self._upload_path
        largest = self._largest_upload if upload else self._largest
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isascii() and announced.isdecimal() and int(announced[:20]) > largest:
            await refusal(413, _too_large(largest), _CLOSE)(scope, receive, send)
            return
        try:
            replay = _Paced(receive, largest, self._pause) if upload else await self._whole(receive)
        except HTTPException as error:
            await refusal(error.status_code, error.detail, _CLOSE)(scope, receive, send)
            return
        await self._app(scope, replay, send)

    async def _whole(self, receive: Receive) -> Receive:
        """Return a function that gives the whole request in one message."""
        parts, size, deadline = [], 0, time.monotonic() + self._seconds
        while True:
            message = await _next(receive, deadline - time.monotonic())
            if message["type"] == "http.disconnect":
                break
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._largest:
                raise HTTPException(413, _too_large(self._largest))
            if not message.get("more_body", False):
                break
        whole: list[Message] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        return replay


class _Paced:
    """Gives the parts of an upload, up to its limits."""

    def __init__(self, receive: Receive, largest: int, pause: float) -> None:
        self._receive, self._left, self._largest, self._pause = receive, largest, largest, pause
        self._complete = False

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()  # waits for the client to disconnect, for which there is no limit
        message = await _next(self._receive, self._pause)
        self._left -= len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._left < 0:
            raise HTTPException(413, _too_large(self._largest), _CLOSE)
        return message


async def _next(receive: Receive, seconds: float) -> Message:
    try:
        return await asyncio.wait_for(receive(), max(0.0, seconds))
    except TimeoutError:
        raise HTTPException(408, "the request took too long to arrive", _CLOSE) from None


def _too_large(largest: int) -> str:
    return f"the request is larger than {largest:,} bytes"

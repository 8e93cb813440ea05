"""Checks of every request before it is read: Host, token, origin and CSRF token; and headers of every answer."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from endtask.errors import InputError

LOOPBACK = frozenset(["localhost", "127.0.0.1", "::1"])
READING = frozenset(["GET", "HEAD", "OPTIONS"])
CSRF_HEADER = "x-csrf-token"
SHORTEST_TOKEN = 16
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""No inline script or style, and nothing from other machines."""
HEADERS = {
    "content-security-policy": POLICY,
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@dataclass(frozen=True)
class Access:
    """Who may use the server: `token` None means programs of this machine, by a loopback address.

    `names` are further host names, such as that of a proxy. `csrf` is the secret that pages send with every change.
    """

    token: str | None = None
    names: frozenset[str] = frozenset()
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    def check_address(self, host: str) -> None:
        """Raise `InputError` for an address that other machines can reach, unless there is a token."""
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            raise InputError(
                f"the token has {len(self.token)} characters", hint=f"use {SHORTEST_TOKEN} or more random ones"
            )
        if self.token is None and host not in LOOPBACK:
            hint = "put a secret into a file and pass --token-file FILE, or leave out --host"
            raise InputError(f"--host {host}: other machines could reach the server, so it needs a token", hint=hint)

    def knows_host(self, header: str) -> bool:
        """Return whether a Host header names this server: a foreign page cannot make a browser send it.

        >>> Access().knows_host("localhost:8765"), Access().knows_host("evil.example")
        (True, False)
        """
        name = _host_name(header)
        if name in LOOPBACK or name in self.names:
            return True
        return self.token is not None and (_is_address(name) or name == socket.gethostname().lower())

    def has_token(self, authorization: str) -> bool:
        """Return whether an Authorization header (Bearer, or Basic with any user name) has the token."""
        if self.token is None:
            return True
        return hmac.compare_digest(_credentials(authorization).encode(), self.token.encode())


def _host_name(header: str) -> str:
    """Return the name in a Host header, without the port; empty if it is malformed."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _credentials(authorization: str) -> str:
    """Return the token of an Authorization header; empty if there is none.

    >>> _credentials("Bearer abc"), _credentials("Basic " + base64.b64encode(b"me:abc").decode())
    ('abc', 'abc')
    """
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() != "basic":
        return ""
    try:
        decoded = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
    return decoded.partition(":")[2]


class Security:
    """Answers requests that fail a check, passes the others on, and adds headers to every answer.

    `harmless` are ends of paths whose POST requests change nothing, so that they need no CSRF token.
    """

    def __init__(self, app: ASGIApp, access: Access, harmless: tuple[str, ...]) -> None:
        self._app, self._access, self._harmless = app, access, harmless

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection; there are no web sockets."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(MutableHeaders(scope=message))
            await send(message)

        problem = self._problem(scope)
        await (problem or self._app)(scope, receive, send_with_headers)

    def _problem(self, scope: Scope) -> Response | None:
        """Return the answer to a request that is not allowed."""
        headers = Headers(scope=scope)
        if not self._access.knows_host(headers.get("host", "")):
            return refusal(400, "this server has another name", {"connection": "close"})
        if not self._access.has_token(headers.get("authorization", "")):
            needed = {"www-authenticate": 'Basic realm="endtask: the token as password"', "connection": "close"}
            return refusal(401, "the token is missing or wrong", needed)
        if scope["method"] in READING:
            return None
        if not _is_same_origin(headers):
            return refusal(403, "sent by a page of another site", {"connection": "close"})
        if scope["path"].endswith(self._harmless):
            return None
        if not hmac.compare_digest(headers.get(CSRF_HEADER, "").encode(), self._access.csrf.encode()):
            hint = f"the header {CSRF_HEADER} is missing or old: reload the page, or see GET /api/session"
            return refusal(403, hint, {"connection": "close"})
        return None


def refusal(status: int, reason: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer with a reason, in the form of FastAPI's."""
    return JSONResponse({"detail": reason}, status, headers)


def _is_same_origin(headers: Headers) -> bool:
    """Return whether a request comes from a page of this server, or from a program that is no browser."""
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit_netloc(origin) == headers.get("host", "").lower()


def urlsplit_netloc(origin: str) -> str:
    """Return the host and port of an origin; empty if it is malformed or `null`.

    >>> urlsplit_netloc("http://localhost:8765"), urlsplit_netloc("null")
    ('localhost:8765', '')
    """
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _add_headers(headers: MutableHeaders) -> None:
    for name, value in HEADERS.items():
        headers.setdefault(name, value)

"""What every request passes first: Host, Origin, token, type and size; and what every answer carries."""

import asyncio
import hmac
import ipaddress
import json
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.exceptions import HTTPException

from clearhead.web.limits import Limits

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "clearhead-token"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
LOG = logging.getLogger("clearhead.web")


@dataclass(frozen=True)
class AccessPolicy:
    """Who may come in: names of this host (addresses are always names of themselves), and the token if any."""

    hosts: tuple[str, ...] = LOOPBACK
    token: str | None = None

    def knows(self, host: str) -> bool:
        """A name that somebody else's DNS could point here is not ours."""
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        if name is None or "/" in host or "@" in host:
            return False
        return name in self.hosts or (self.token is not None and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Refused(HTTPException):
    """A request that goes no further; an HTTPException, so that it passes whole through whoever reads the body."""


class Guard:
    """The outermost layer. Faults of ours are logged by kind and place, never with what the user wrote."""

    def __init__(self, app: App, door: AccessPolicy, limits: Limits) -> None:
        self.app, self.door, self.limits = app, door, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await (self.app(scope, receive, send) if scope["type"] == "lifespan" else _closed(send))
            return
        guarded = Answering(send)
        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            self._check(scope, headers)
            body = Counting(receive, self.limits)
            await self.app(scope, body, guarded)
        except Refused as refusal:
            await guarded.refuse(refusal.status_code, refusal.detail, refusal.headers)
        except Exception as error:
            LOG.error("%s in %s (%s %s)", type(error).__name__, _where(error), scope["method"], scope["path"])
            await guarded.refuse(500, "Something failed here; the server's log says where.")

    def _check(self, scope: Scope, headers: dict[str, str]) -> None:
        host = headers.get("host", "")
        if not self.door.knows(host):
            raise Refused(421, "This server does not go by that name.")
        if scope["method"] not in ("GET", "HEAD", "POST"):
            raise Refused(405, "Only GET and POST are answered here.", {"allow": "GET, HEAD, POST"})
        self._check_origin(scope, headers, host)
        self._check_token(scope, headers)
        if scope["method"] == "POST":
            self._check_body(headers)

    def _check_origin(self, scope: Scope, headers: dict[str, str], host: str) -> None:
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            raise Refused(403, "Requests from other pages are not answered.")
        foreign = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if foreign and not (scope["path"] == "/" and scope["method"] == "GET"):
            raise Refused(403, "Requests from other pages are not answered.")

    def _check_token(self, scope: Scope, headers: dict[str, str]) -> None:
        token = self.door.token
        if token is None:
            return
        if scope["path"] == "/" and same(
            parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0], token
        ):
            cookie = f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict"
            raise Refused(303, "Come in.", {"location": "/", "set-cookie": cookie})
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if not any(same(given, token) for given in (bearer, _cookie(headers.get("cookie", "")))):
            message = "A token is needed: open the address that the server printed, or send Authorization: Bearer."
            raise Refused(401, message, {"www-authenticate": "Bearer"})

    def _check_body(self, headers: dict[str, str]) -> None:
        if headers.get("content-type", "").partition(";")[0].strip().casefold() != "application/json":
            raise Refused(415, "Send JSON: Content-Type: application/json.")
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:20]) > self.limits.body:
            raise Refused(413, f"A request may have {self.limits.body // 1_000_000} MB.", {"connection": "close"})


def same(given: str, token: str) -> bool:
    """Compared in a time that tells nothing."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _cookie(text: str) -> str:
    try:
        found = SimpleCookie(text).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


class Counting:
    """A request's body, as long as it is neither too long nor too slow."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self.receive, self.limits = receive, limits
        self.size = 0
        self.done = False
        self.until = asyncio.get_running_loop().time() + limits.upload

    async def __call__(self) -> MutableMapping[str, Any]:
        if self.done:
            return await self.receive()
        try:
            async with asyncio.timeout_at(self.until):
                message = await self.receive()
        except TimeoutError:
            raise Refused(408, "The request came too slowly.", {"connection": "close"}) from None
        self.size += len(message.get("body", b""))
        if self.size > self.limits.body:
            raise Refused(413, f"A request may have {self.limits.body // 1_000_000} MB.", {"connection": "close"})
        self.done = not message.get("more_body", False)
        return message


class Answering:
    """An answer with the headers that all of them carry."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.begun = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            given = {name.lower() for name, _ in message.get("headers", [])}
            extra = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in given]
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await self.send(message)

    async def refuse(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        if self.begun:
            return
        body = json.dumps({"error": text}).encode()
        lines = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        packed = [(name.encode(), value.encode()) for name, value in lines.items()]
        await self({"type": "http.response.start", "status": status, "headers": packed})
        await self({"type": "http.response.body", "body": body})


async def _closed(send: Send) -> None:
    await send({"type": "websocket.close", "code": 1008})


def _where(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return ", ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in last)

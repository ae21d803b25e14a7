"""Checks of every request (Host, Origin, token, content type, size) and security headers of every response."""

import asyncio
import hmac
import ipaddress
import json
import logging
import traceback
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.exceptions import HTTPException

from clearhead.web.limits import Limits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
HeaderList = list[tuple[bytes, bytes]]

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
MAX_LENGTH_DIGITS = 20
ERROR_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
    "<title>Clearhead</title><h1>Clearhead</h1><p>{}</p></html>\n"
)
POLICY_VIOLATION = 1008
LOG = logging.getLogger("clearhead.web")


@dataclass(frozen=True)
class AccessPolicy:
    """Host names that the server answers to, and the token that requests need, if any."""

    hosts: tuple[str, ...] = LOOPBACK
    token: str | None = None

    def accepts_host(self, host: str) -> bool:
        """Return whether the Host header names this server.

        Any other name is rejected, because an attacker's DNS could point it at this machine (DNS rebinding). Bare IP
        addresses cannot be rebound, so a server with a token accepts all of them.
        """
        name = _parse_host(host)
        if name is None:
            return False
        if name in self.hosts:
            return True
        return self.token is not None and _is_ip_address(name)


def _parse_host(header: str) -> str | None:
    """Return the host name in a Host header, without the port; None if the header is malformed."""
    if _is_ambiguous(header):
        return None
    try:
        return urlsplit(f"//{header}").hostname
    except ValueError:
        return None


def _is_ambiguous(header: str) -> bool:
    # urlsplit would take the host from behind an @ or before a /, which other parsers read differently.
    return "/" in header or "@" in header


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class RequestRejected(HTTPException):
    """A request that is answered by the middleware.

    An HTTPException, because FastAPI turns other errors that are raised while it reads the body into status 400.
    """


class SecurityMiddleware:
    """Outermost ASGI layer: checks requests and adds headers to responses.

    Internal errors are logged by type and location only, so that the log never contains user input.
    """

    def __init__(
        self, app: App, policy: AccessPolicy, limits: Limits, post_paths: Collection[str] = frozenset()
    ) -> None:
        self.app = app
        self.policy = policy
        self.limits = limits
        self.post_paths = post_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection; WebSockets are closed."""
        if scope["type"] == "http":
            await self._handle_http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        else:
            # The page uses no WebSockets, and the checks of this class are of HTTP requests only.
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})

    async def _handle_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = SecuredResponse(send, has_body=scope["method"] != "HEAD")
        try:
            self._check_request(scope)
            await self.app(_read_instead(scope), LimitedBody(receive, self.limits), response)
        except RequestRejected as rejection:
            await response.send_error(rejection.status_code, rejection.detail, rejection.headers, _asks_for_html(scope))
        except Exception as error:
            _log_error(error, scope)
            await response.send_error(500, "Internal error: the log of the server names its location.")

    def _check_request(self, scope: Scope) -> None:
        headers = _decode_headers(scope)
        host = headers.get("host", "")
        # First of all, so that a rebound name learns nothing about the server.
        if not self.policy.accepts_host(host):
            raise RequestRejected(421, "Unknown Host header.")
        self._check_method(scope)
        _check_origin(scope, headers, host)
        self._check_token(scope, headers)
        if scope["method"] == "POST":
            self._check_body(headers)

    def _check_method(self, scope: Scope) -> None:
        allowed = ("POST",) if scope["path"] in self.post_paths else ("GET", "HEAD")
        if scope["method"] not in allowed:
            listed = ", ".join(allowed)
            raise RequestRejected(405, f"Method not allowed. Available: {listed}.", {"allow": listed})

    def _check_token(self, scope: Scope, headers: dict[str, str]) -> None:
        token = self.policy.token
        if token is None:
            return
        # Only for the page itself, which is what a person opens; scripts send a header.
        if _opens_page(scope, token):
            raise _redirect_with_cookie(token, headers)
        if not _has_token(headers, token):
            message = "Missing or wrong token: open the address that the server printed, or send Authorization: Bearer."
            raise RequestRejected(401, message, {"www-authenticate": "Bearer"})

    def _check_body(self, headers: dict[str, str]) -> None:
        # HTML forms of other sites can send text/plain without asking first (CORS preflight), but not JSON.
        if _parse_content_type(headers) != "application/json":
            raise RequestRejected(415, "Unsupported content type: send JSON with Content-Type: application/json.")
        self._check_length(headers)

    def _check_length(self, headers: dict[str, str]) -> None:
        length = _parse_content_length(headers)
        if length is None or length > self.limits.max_body_bytes:
            raise _body_too_large(self.limits)


def _opens_page(scope: Scope, token: str) -> bool:
    return scope["path"] == "/" and _is_token(_read_query_token(scope), token)


def _log_error(error: Exception, scope: Scope) -> None:
    # Neither the message nor the query string, which may both contain user input.
    LOG.error("%s in %s (%s %s)", type(error).__name__, _locate(error), scope["method"], scope["path"])


def _parse_content_type(headers: Mapping[str, str]) -> str:
    """Return the media type without parameters such as the charset."""
    media_type = headers.get("content-type", "").partition(";")[0]
    return media_type.strip().casefold()


def _parse_content_length(headers: Mapping[str, str]) -> int | None:
    """Return the announced length of the body, 0 if there is none; None if it is not a number."""
    length = headers.get("content-length", "0")
    if not _is_number(length):
        return None
    # int() raises for thousands of digits; the first ones are enough to see that the number is too large.
    return int(length[:MAX_LENGTH_DIGITS])


def _is_number(text: str) -> bool:
    # str.isdigit() is also true of digits that int() does not read, such as superscripts.
    return text.isascii() and text.isdigit()


def _decode_headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _read_instead(scope: Scope) -> Scope:
    # HEAD is answered as GET, without the body.
    return {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope


def _check_origin(scope: Scope, headers: dict[str, str], host: str) -> None:
    """Raise unless the request comes from this server's own page or from no page at all."""
    if _has_other_origin(headers, host) or _is_foreign_fetch(scope, headers):
        raise RequestRejected(403, "Requests from other sites are not allowed.")


def _is_foreign_fetch(scope: Scope, headers: Mapping[str, str]) -> bool:
    # Other sites may link to the page itself, which reveals nothing to them.
    return _is_fetched_by_other_site(headers) and not _asks_for_page(scope)


def _asks_for_page(scope: Scope) -> bool:
    return (scope["method"], scope["path"]) == ("GET", "/")


def _asks_for_html(scope: Scope) -> bool:
    """Return whether a person opens the page itself, who cannot be expected to read JSON."""
    return scope["path"] == "/" and "text/html" in _decode_headers(scope).get("accept", "")


def _has_other_origin(headers: Mapping[str, str], host: str) -> bool:
    origin = headers.get("origin")
    # Programs other than browsers send no Origin.
    return origin is not None and origin not in (f"http://{host}", f"https://{host}")


def _is_fetched_by_other_site(headers: Mapping[str, str]) -> bool:
    # Browsers send this header also with GET requests, which have no Origin header.
    return headers.get("sec-fetch-site") in ("cross-site", "same-site")


def _redirect_with_cookie(token: str, headers: Mapping[str, str]) -> RequestRejected:
    """Return a redirect to the page that moves the token from the address into a cookie.

    In the address it would stay in the history of the browser.
    """
    # HttpOnly hides it from scripts, Strict withholds it from requests that other sites cause.
    cookie = f"{_name_cookie(headers)}={token}; Path=/; HttpOnly; SameSite=Strict"
    return RequestRejected(303, "Token accepted.", {"location": "/", "set-cookie": cookie})


def _body_too_large(limits: Limits) -> RequestRejected:
    message = f"The request body is too large: at most {limits.max_body_bytes // 1_000_000} MB are accepted."
    # Without `close` the client would go on sending the body on the same connection.
    return RequestRejected(413, message, {"connection": "close"})


def _body_too_slow(limits: Limits) -> RequestRejected:
    message = f"The request body took longer than {limits.body_timeout:g} seconds."
    return RequestRejected(408, message, {"connection": "close"})


def _has_token(headers: Mapping[str, str], token: str) -> bool:
    return _is_token(_read_bearer_token(headers), token) or _is_token(_read_cookie_token(headers), token)


def _read_bearer_token(headers: Mapping[str, str]) -> str:
    return headers.get("authorization", "").removeprefix("Bearer ")


def _is_token(candidate: str, token: str) -> bool:
    # Constant time, so that response times do not reveal how much of a guess is right.
    return hmac.compare_digest(candidate.encode("utf-8", "replace"), token.encode())


def _read_query_token(scope: Scope) -> str:
    query_string: str = scope["query_string"].decode("latin-1")
    return parse_qs(query_string).get("token", [""])[0]


def _name_cookie(headers: Mapping[str, str]) -> str:
    """Return the name of the cookie, with the port: all servers of a host get the cookies of all of them."""
    _, _, port = headers.get("host", "").rpartition(":")
    return f"{COOKIE}-{port}" if port.isdigit() else COOKIE


def _read_cookie_token(headers: Mapping[str, str]) -> str:
    name = _name_cookie(headers)
    # By hand: SimpleCookie reads nothing if a cookie of another application is not as the standard says.
    for cookie in headers.get("cookie", "").split(";"):
        key, _, value = cookie.strip().partition("=")
        if key == name:
            return value
    return ""


class LimitedBody:
    """ASGI `receive` that rejects a request body that is too large or arrives too slowly."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self.receive = receive
        self.limits = limits
        self.size = 0
        self.is_complete = False
        self.deadline = asyncio.get_running_loop().time() + limits.body_timeout

    async def __call__(self) -> Message:
        """Return the next message of the request."""
        # After the body, `receive` waits for the client to disconnect, which may take any time.
        if self.is_complete:
            return await self.receive()
        message = await self._receive_in_time()
        # Counted here as well, since a chunked body has no Content-Length.
        self.size += len(message.get("body", b""))
        if self.size > self.limits.max_body_bytes:
            raise _body_too_large(self.limits)
        self.is_complete = not message.get("more_body", False)
        return message

    async def _receive_in_time(self) -> Message:
        try:
            async with asyncio.timeout_at(self.deadline):
                return await self.receive()
        except TimeoutError:
            raise _body_too_slow(self.limits) from None


class SecuredResponse:
    """ASGI `send` that adds the security headers."""

    def __init__(self, send: Send, *, has_body: bool = True) -> None:
        self.send = send
        self.has_body = has_body
        self.has_started = False

    async def __call__(self, message: Message) -> None:
        """Send one message of the response."""
        if message["type"] == "http.response.start":
            self.has_started = True
            message = _add_security_headers(message)
        elif not self.has_body:
            message = {**message, "body": b""}
        await self.send(message)

    async def send_error(
        self, status: int, text: str, headers: Mapping[str, str] | None = None, is_page: bool = False
    ) -> None:
        """Send an error as JSON, or as a page to read, unless the response has already started."""
        if self.has_started:
            return
        body = ERROR_PAGE.format(escape(text)).encode() if is_page else json.dumps({"error": text}).encode()
        fields = _encode_headers({**_describe_body(body, is_page), **(headers or {})})
        await self({"type": "http.response.start", "status": status, "headers": fields})
        await self({"type": "http.response.body", "body": body})


def _describe_body(body: bytes, is_page: bool) -> dict[str, str]:
    media_type = "text/html; charset=utf-8" if is_page else "application/json"
    return {"content-type": media_type, "content-length": str(len(body))}


def _add_security_headers(message: Message) -> Message:
    # A copy: the message belongs to the application.
    return {**message, "headers": _complete_headers(message.get("headers", []))}


def _complete_headers(headers: HeaderList) -> HeaderList:
    """Add the security headers that the response does not set itself, as pages of runs do."""
    present = {name.lower() for name, _ in headers}
    missing = [(name, value) for name, value in _encode_headers(HEADERS) if name not in present]
    return [*headers, *missing]


def _encode_headers(headers: Mapping[str, str]) -> HeaderList:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def _locate(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    file_name = frames[-1].filename.rpartition("/")[2]
    return f"{file_name}:{frames[-1].lineno}"

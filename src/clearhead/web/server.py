"""A server that binds before it loads, gives up on those who never finish asking, and leaves when told."""

import asyncio
import secrets
import signal
import socket
from collections.abc import Sequence
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from clearhead.errors import BadOption
from clearhead.model import zoo
from clearhead.web.security import LOOPBACK, AccessPolicy

HEADERS_WITHIN = 15.0
GRACE = 3


class HeaderTimeoutProtocol(H11Protocol):
    """Closes a connection whose request is not complete in time; uvicorn alone would wait for ever."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.expect()

    def expect(self) -> None:
        self.loop.call_later(HEADERS_WITHIN, self._give_up, self.cycle)

    def _give_up(self, before: Any) -> None:
        if self.cycle is before and not self.transport.is_closing():
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.expect()


def access_policy(host: str, token: str | None) -> AccessPolicy:
    """Loopback needs no token; every other host gets one."""
    if host in LOOPBACK and token is None:
        return AccessPolicy()
    return AccessPolicy((*LOOPBACK, host, socket.gethostname().casefold()), token or secrets.token_urlsafe(18))


def bound(host: str, port: int) -> socket.socket:
    """A socket, so that the address is known before anything is loaded.

    asyncio sends small answers at once only where the socket's protocol is named; else they wait 40 ms.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except (OSError, OverflowError) as error:
        raise BadOption(f"{host}:{port} cannot be used: {error}. Choose another with --port, or 0 for any.") from error
    return found


def address_of(listening: socket.socket, door: AccessPolicy) -> str:
    """What to open in a browser."""
    host, port = listening.getsockname()[:2]
    name = f"[{host}]" if ":" in host else "127.0.0.1" if host == "0.0.0.0" else host
    return f"http://{name}:{port}/" + (f"?token={door.token}" if door.token else "")


def open_socket(sources: Sequence[str], *, allow_pickle: bool, device: str | None) -> dict[str, Any]:
    """The models by the names they have on the page: embedded ones as they are, folders without their path."""
    from dataclasses import replace

    from transformers.utils import logging

    from clearhead.model.loading import load

    logging.set_verbosity_error()
    found: dict[str, Any] = {}
    for source in sources or zoo.names():
        name = source if source in zoo.names() else source.rstrip("/\\").replace("\\", "/").rpartition("/")[2]
        if name in found:
            raise BadOption(f"Two models would be called '{name}' on the page: rename one of the folders.")
        found[name] = replace(load(source, allow_pickle=allow_pickle, device=device), name=name)
    return found


def run(app: Any, listening: socket.socket) -> None:
    """Serves until SIGINT or SIGTERM, then finishes what it can within a few seconds."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    settings = uvicorn.Config(
        app,
        http=HeaderTimeoutProtocol,
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=64 * 1024,
    )
    asyncio.run(uvicorn.Server(settings).serve(sockets=[listening]))

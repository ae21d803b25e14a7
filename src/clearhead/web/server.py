"""HTTP server: binds before models are loaded, drops clients that never finish a request, ends on SIGTERM."""

import asyncio
import re
import secrets
import signal
import socket
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from clearhead.errors import BadOption
from clearhead.model import zoo
from clearhead.model.zoo import language_model
from clearhead.web.security import LOOPBACK, AccessPolicy

REQUEST_TIMEOUT = 15.0
SHUTDOWN_TIMEOUT = 3
KEEP_ALIVE_TIMEOUT = 10
MAX_HEADER_BYTES = 64 * 1024
TOKEN_BYTES = 18
MIN_TOKEN_CHARACTERS = 16
EVERY_INTERFACE = ("0.0.0.0", "::")
HOST_NAME = re.compile(r"[\w-]+(\.[\w-]+)*", re.ASCII)


class HeaderTimeoutProtocol(H11Protocol):
    """Closes a connection on which the headers of a request do not arrive in time; uvicorn would wait for ever."""

    def connection_made(self, transport: Any) -> None:
        """Start the timeout of the first request."""
        super().connection_made(transport)
        self._start_timeout()

    def on_response_complete(self) -> None:
        """Start the timeout of the next request on this connection."""
        super().on_response_complete()
        self._start_timeout()

    def _start_timeout(self) -> None:
        self.loop.call_later(REQUEST_TIMEOUT, self._close_if_idle, self.cycle)

    def _close_if_idle(self, previous_cycle: Any) -> None:
        # uvicorn creates a new cycle once all headers of a request are there.
        if self.cycle is previous_cycle and not self.transport.is_closing():
            self.transport.close()


def access_policy(host: str, token: str | None, names: Sequence[str] = ()) -> AccessPolicy:
    """Return who may use the server: loopback needs no token, every other host or further name gets one."""
    if _is_private(host, token, names):
        return AccessPolicy()
    _check_host_names(names)
    if host not in LOOPBACK and token is not None:
        _check_token(token)
    # Other machines may address this one by its name.
    hosts = (*LOOPBACK, host, socket.gethostname().casefold(), *map(str.casefold, names))
    return AccessPolicy(hosts, token or secrets.token_urlsafe(TOKEN_BYTES))


def _is_private(host: str, token: str | None, names: Sequence[str]) -> bool:
    # Nobody but this machine reaches it.
    return host in LOOPBACK and token is None and not names


def _check_host_names(names: Sequence[str]) -> None:
    for name in names:
        # A wildcard or an address would match no Host header, and the page would answer to nobody.
        if not HOST_NAME.fullmatch(name):
            raise BadOption(f"Invalid --allow-host '{name}': give a host name without scheme, port and path.")


def _check_token(token: str) -> None:
    # On a network, anyone may guess as often as they like.
    if len(token) < MIN_TOKEN_CHARACTERS:
        raise BadOption(
            f"Invalid --token of {len(token)} characters: give at least {MIN_TOKEN_CHARACTERS}, or leave it out: "
            "one is generated."
        )


def list_addresses(listening: socket.socket, policy: AccessPolicy) -> list[str]:
    """Return the addresses under which a browser finds the page: that of this machine, and those of the network."""
    host, _ = listening.getsockname()[:2]
    local = format_address(listening, policy)
    if host not in EVERY_INTERFACE:
        return [local]
    # The name by which other machines of the network usually find this one.
    return [local, format_address(listening, policy, socket.gethostname())]


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind a socket, so that the address is known (or refused) before models are loaded."""
    try:
        return _create_socket(host, port)
    except (OSError, OverflowError) as error:
        raise BadOption(f"Cannot listen on {host}:{port}: {error}. Choose another --port, or 0 for any.") from error


def _create_socket(host: str, port: int) -> socket.socket:
    family, socket_type, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    # asyncio sets TCP_NODELAY only on sockets whose protocol is given; without it small answers wait 40 ms.
    listening = socket.socket(family, socket_type, protocol)
    # Without it, the port of a server that has just ended stays blocked for a minute.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(address)
    return listening


def format_address(listening: socket.socket, policy: AccessPolicy, name: str | None = None) -> str:
    """Return the address to open in a browser, with the token if there is one; `name` replaces that of the socket."""
    # A socket of IPv6 returns four values.
    host, port = listening.getsockname()[:2]
    return f"http://{_format_host(name or host)}:{port}/{_format_query(policy)}"


def _format_query(policy: AccessPolicy) -> str:
    if not policy.token:
        return ""
    return f"?token={policy.token}"


def _format_host(host: str) -> str:
    # 0.0.0.0 means all interfaces; it is not an address that browsers open everywhere.
    if host in EVERY_INTERFACE:
        return "127.0.0.1"
    # The colons of an IPv6 address would be read as the start of the port.
    if ":" in host:
        return f"[{host}]"
    return host


def load_models(sources: Sequence[str], *, allow_pickle: bool, device: str | None) -> dict[str, Any]:
    """Load the models, by default all embedded ones; return them by their names on the page."""
    # Imported here, because transformers takes seconds and the socket is bound first.
    from transformers.utils import logging

    from clearhead.model.loading import load
    from clearhead.model.model_checks import refuse_choices

    logging.set_verbosity_error()
    models: dict[str, Any] = {}
    for name, source in _name_sources(sources or zoo.names()).items():
        model = load(source, allow_pickle=allow_pickle, device=device)
        refuse_choices(model, "The page")
        models[name] = replace(model, name=name)
    return models


def _name_sources(sources: Iterable[str]) -> dict[str, str]:
    """Return where to load the models from, by their names on the page."""
    by_name: dict[str, str] = {}
    for source in sources:
        name = _make_display_name(source)
        if name in by_name:
            raise BadOption(f"Two models would be called '{name}' on the page: rename one of the folders.")
        by_name[name] = source
    return by_name


def _make_display_name(source: str) -> str:
    """Return an embedded model's name as it is, and a folder's without its path, which is private."""
    if source in (*zoo.names(), language_model.NAME):
        return source
    # Not pathlib, which knows the separators of this system only.
    path = source.replace("\\", "/").rstrip("/")
    return path.rpartition("/")[2]


def run(app: Any, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, then finish running requests within a few seconds."""
    _ignore_second_signal()
    server = uvicorn.Server(_configure(app))
    asyncio.run(server.serve(sockets=[listening]))


def _ignore_second_signal() -> None:
    # uvicorn raises the signal again after its shutdown, and the default handler would then end with an error status.
    signal.signal(signal.SIGTERM, lambda *_: None)


def _configure(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=HeaderTimeoutProtocol,
        ws="none",
        log_level="error",
        # An access log would contain the token, which the address carries once.
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_TIMEOUT,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )

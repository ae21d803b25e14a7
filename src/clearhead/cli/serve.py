"""clearhead serve."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.options import AllowPickle, Device, complete_models
from clearhead.errors import BadOption

if TYPE_CHECKING:
    from fastapi import FastAPI

    from clearhead.model.model import Model
    from clearhead.web.security import AccessPolicy

Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="M",
        autocompletion=complete_models,
        help="Embedded model, folder or hub id; repeatable. Default: all embedded models.",
    ),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")]
Host = Annotated[str, typer.Option(metavar="H", help="Address to listen on; all but loopback require a token.")]
Open = Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")]
Token = Annotated[str | None, typer.Option(metavar="T", help="Access token; generated for non-loopback hosts.")]
Runs = Annotated[
    list[Path] | None, typer.Option("--run", metavar="RUN", help="Run folder of clearhead bench to browse; repeatable.")
]
Data = Annotated[
    list[Path] | None,
    typer.Option("--data", metavar="DATA", help="Data file or folder of a run, to show its images; repeatable."),
]


def serve(
    model: Models = None,
    port: Port = 8420,
    host: Host = "127.0.0.1",
    open_: Open = True,
    token: Token = None,
    device: Device = None,
    run: Runs = None,
    data: Data = None,
    allow_pickle: AllowPickle = False,
) -> None:
    """Serve a page that explains texts and images, and tests the explanations. Nothing leaves this machine."""
    server = _import_server()
    policy = server.access_policy(host, token)
    # Bound before models are loaded, so that a port in use is reported at once.
    socket = server.bind_socket(host, port)
    address = server.format_address(socket, policy)
    models = server.load_models(model or [], allow_pickle=allow_pickle, device=device)
    app = _build_app(models, policy, run or [], data or [])
    # Listening before the server runs: a browser that opens the address at once waits instead of being refused.
    socket.listen()
    typer.echo(f"Clearhead is at {address}  (Ctrl-C ends it)")
    if open_:
        typer.launch(address)
    server.run(app, socket)


def _import_server() -> Any:
    try:
        from clearhead.web import server
    except ImportError as error:
        raise BadOption(f"The page needs {error.name}: pip install 'clearhead[web]'.") from error
    return server


def _build_app(
    models: "Mapping[str, Model]", policy: "AccessPolicy", run_folders: list[Path], data: list[Path]
) -> "FastAPI":
    from clearhead.web.app import build_app
    from clearhead.web.runs import Runs

    return build_app(models, policy, runs=Runs(run_folders, data))

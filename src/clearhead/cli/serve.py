"""clearhead serve."""

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.options import DEVICE, model_names
from clearhead.errors import BadOption

MODELS = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="M",
        autocompletion=model_names,
        help="An embedded model by name, a folder, or a hub id; repeat for more. Without it all embedded models.",
    ),
]
PORT = Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any free one.")]
HOST = Annotated[str, typer.Option(metavar="H", help="The address to listen on. Any but loopback needs a token.")]
OPEN = Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")]
TOKEN = Annotated[
    str | None, typer.Option(metavar="T", help="What every request must bring; made up for hosts beyond loopback.")
]
RUNS = Annotated[
    list[Path] | None, typer.Option("--run", metavar="RUN", help="A run of clearhead bench to browse; repeat for more.")
]
DATA = Annotated[
    list[Path] | None,
    typer.Option(
        "--data", metavar="DATA", help="The file or folder that a run was made from, to open its pictures; repeat."
    ),
]
PICKLE = Annotated[bool, typer.Option("--allow-pickle", help="Also read pickled weights, which can run code.")]


def serve(
    model: MODELS = None,
    port: PORT = 8420,
    host: HOST = "127.0.0.1",
    open_: OPEN = True,
    token: TOKEN = None,
    device: DEVICE = None,
    run: RUNS = None,
    data: DATA = None,
    allow_pickle: PICKLE = False,
) -> None:
    """Open a page that explains what you type or drop, and lets you test it. Nothing leaves this machine."""
    try:
        from clearhead.web import server
    except ImportError as error:
        raise BadOption(f"The page needs {error.name}: pip install 'clearhead[web]'.") from error
    door = server.access_policy(host, token)
    listening = server.bound(host, port)
    address = server.address_of(listening, door)
    models = server.open_socket(model or [], allow_pickle=allow_pickle, device=device)
    from clearhead.web.app import build
    from clearhead.web.runs import Runs

    app = build(models, door, runs=Runs(run or [], data or []))
    listening.listen()  # whoever follows the address at once waits instead of being refused
    typer.echo(f"Clearhead is at {address}  (Ctrl-C ends it)")
    if open_:
        typer.launch(address)
    server.run(app, listening)

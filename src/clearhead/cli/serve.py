"""clearhead serve."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli import options
from clearhead.cli.options import AllowPickle, Device, complete_models
from clearhead.errors import BadOption
from clearhead.progress import spinner

if TYPE_CHECKING:
    from fastapi import FastAPI

    from clearhead.data.task import Task
    from clearhead.model.model import Model
    from clearhead.web.runs import Runs as RunFolders
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
Token = Annotated[
    str | None,
    typer.Option(
        metavar="T",
        # A list of processes shows arguments to every user of the machine, but not the environment.
        envvar="CLEARHEAD_TOKEN",
        help="Access token; generated for non-loopback hosts. Better set in the environment: CLEARHEAD_TOKEN.",
    ),
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host", metavar="H", help="Further host name of the page, as of a proxy before it; repeatable."
    ),
]
Runs = Annotated[
    list[Path] | None, typer.Option("--run", metavar="RUN", help="Run folder of clearhead bench to browse; repeatable.")
]
Data = Annotated[
    list[Path] | None,
    typer.Option("--data", metavar="DATA", help="Data file or folder of a run, to show its images; repeatable."),
]

TaskPaths = Annotated[
    list[str] | None,
    typer.Option("--task", metavar="PATH|NAME", help="Table of texts or folder of images to browse; repeatable."),
]
TaskLimit = Annotated[
    int, typer.Option(metavar="N", min=1, help="Examples of each task, drawn at random with a fixed seed.")
]


def serve(
    model: Models = None,
    port: Port = 8420,
    host: Host = "127.0.0.1",
    open_: Open = True,
    token: Token = None,
    allow_host: AllowedHosts = None,
    device: Device = None,
    run: Runs = None,
    data: Data = None,
    task: TaskPaths = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    limit: TaskLimit = 1000,
    allow_pickle: AllowPickle = False,
) -> None:
    """Serve a page that explains texts and images, and tests the explanations. Nothing leaves this machine."""
    server = _import_server()
    policy = server.access_policy(host, token, allow_host or [])
    # Bound before models are loaded, so that a port in use is reported at once.
    socket = server.bind_socket(host, port)
    addresses = server.list_addresses(socket, policy)
    # Read before models are loaded, too: a mistake in a file or a column is reported at once.
    tasks = _read_tasks(task or [], text_column=text_column, label_column=label_column, limit=limit)
    with spinner("Loading the models …"):
        models = server.load_models(model or [], allow_pickle=allow_pickle, device=device)
    app = _build_app(models, policy, _open_runs(run or [], data or []), tasks)
    # Listening before the server runs: a browser that opens the address at once waits instead of being refused.
    socket.listen()
    typer.echo(f"Clearhead is at {' and '.join(addresses)}  (Ctrl-C ends it)")
    if open_:
        typer.launch(addresses[0])
    server.run(app, socket)


def _import_server() -> Any:
    try:
        from clearhead.web import server
    except ImportError as error:
        raise BadOption(f"The page needs {error.name}: pip install 'clearhead[web]'.") from error
    return server


def _read_tasks(sources: list[str], **columns: Any) -> "list[Task]":
    """Read the tasks, and say which of their rows cannot be used."""
    from clearhead.data.read import read_task

    tasks = [read_task(source, **columns) for source in sources]
    for notice in filter(None, (task.notice for task in tasks)):
        typer.echo(notice, err=True)
    return tasks


def _open_runs(folders: list[Path], data: list[Path]) -> "RunFolders":
    from clearhead.web.runs import Runs

    return Runs(folders, data)


def _build_app(
    models: "Mapping[str, Model]", policy: "AccessPolicy", runs: "RunFolders", tasks: "list[Task]"
) -> "FastAPI":
    from clearhead.web.app import build_app
    from clearhead.web.tasks import Tasks

    return build_app(models, policy, runs=runs, tasks=Tasks(tasks, models))

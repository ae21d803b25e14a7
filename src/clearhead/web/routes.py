"""Routes of the page and of the JSON API; `app.state` holds the service, the dispatcher, the runs and the limits."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.routing import APIRoute

from clearhead.attribution.choices import find_choice
from clearhead.attribution.method import METHODS, Method, default_method
from clearhead.errors import BadInput, UnknownName
from clearhead.model import zoo
from clearhead.model.focused_inputs import describe_focus
from clearhead.model.model import Model
from clearhead.plain import finite
from clearhead.version import __version__
from clearhead.views import html, html_parts, line_styles, text_spans
from clearhead.views.text_spans import escape_hidden
from clearhead.web.dispatcher import MAX_TICKET, Dispatcher
from clearhead.web.method_menu import MENU, find_group, list_choices, list_inputs
from clearhead.web.responses import MEDIA_TYPES, make_explanation_body, render_file
from clearhead.web.run_examples import ExampleFilter
from clearhead.web.runs import Runs
from clearhead.web.schemas import (
    CurveRequest,
    CurveResponse,
    ErrorBody,
    Examples,
    ExplainRequest,
    HideRequest,
    HideResponse,
    MethodInfo,
    ModelInfo,
    Name,
    ProgressInfo,
    RunInfo,
    Slice,
)
from clearhead.web.service import ExplainService

PACKAGE = files("clearhead.web")
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorBody, "description": "The body is not JSON."},
    408: {"model": ErrorBody, "description": "The body took too long to arrive."},
    413: {"model": ErrorBody, "description": "The body is too large."},
    415: {"model": ErrorBody, "description": "The body is not sent as application/json."},
    422: {"model": ErrorBody, "description": "Invalid request."},
    503: {"model": ErrorBody, "description": "Too many requests are waiting; Retry-After says when to try again."},
}
LOOKUP_ERRORS: dict[int | str, dict[str, Any]] = {
    404: {"model": ErrorBody, "description": "There is no such run, method, metric or example."},
    422: ERRORS[422],
}
PNG: dict[str, Any] = {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}}
REPORT_POLICY = f"{html.POLICY}; frame-ancestors 'none'; sandbox"

Ticket = Annotated[str, Path(min_length=1, max_length=MAX_TICKET)]

# The names of the API routes are part of the API: OpenAPI derives the operation ids from them.
page_router = APIRouter(include_in_schema=False)
api_router = APIRouter(prefix="/api")


def _get_service(request: Request) -> ExplainService:
    service: ExplainService = request.app.state.service
    return service


def _get_dispatcher(request: Request) -> Dispatcher:
    dispatcher: Dispatcher = request.app.state.dispatcher
    return dispatcher


def _get_runs(request: Request) -> Runs:
    runs: Runs = request.app.state.runs
    return runs


@cache
def _load_page() -> str:
    template = PACKAGE / "templates" / "page.html"
    return template.read_text("utf-8").replace("{{version}}", __version__)


@cache
def _load_view_styles() -> str:
    return "\n".join((*html_parts.style_sheet(), *line_styles.style_rules()))


@cache
def _load_sample() -> bytes:
    return (files("clearhead.model.zoo") / "examples" / "chelsea.jpg").read_bytes()


@page_router.get("/")
async def show_page() -> Response:
    return HTMLResponse(_load_page())


@page_router.get("/views.css")
async def show_view_styles() -> Response:
    return Response(_load_view_styles(), media_type="text/css")


@contextmanager
def answer_404() -> Iterator[None]:
    """Answer with status 404 if a run, or what it is asked for, does not exist."""
    try:
        yield
    except (UnknownName, BadInput) as error:
        raise HTTPException(404, escape_hidden(str(error))) from error


@page_router.get("/sample.jpg")
async def show_sample() -> Response:
    return Response(_load_sample(), media_type="image/jpeg")


@page_router.get("/runs/{name}")
async def show_report(name: str, request: Request) -> Response:
    runs = _get_runs(request)
    with answer_404():
        # In a thread, because rendering a report for the first time takes seconds.
        report = await asyncio.to_thread(lambda: runs[name].page)
    return HTMLResponse(report, headers={"content-security-policy": REPORT_POLICY})


@api_router.get("/models", name="models")
async def list_models(request: Request) -> list[ModelInfo]:
    """List the models of this server; requests may name only these."""
    return [_describe_model(name, model) for name, model in _get_service(request).models.items()]


def _describe_model(name: str, model: Model) -> ModelInfo:
    return ModelInfo(
        name=name,
        kind="image" if _takes_images(model) else "text",
        problem=model.problem,
        # Escaped, because characters that reorder others could make a label read as another.
        labels=list(map(escape_hidden, model.labels)) if _lists_classes(model) else [],
        compares=model.reads_pairs,
        focus=describe_focus(model),
        chat=model.writes and bool(getattr(model.processor, "chat_template", None)),
        method=default_method(model),
        chosen=find_choice(model) is not None,
        summary=_find_summary(name),
    )


def _lists_classes(model: Model) -> bool:
    # The classes of a masked word are a whole vocabulary.
    return not (model.writes or model.reads_pairs or model.names_words)


def _takes_images(model: Model) -> bool:
    # Of a two-tower model, its first input.
    return bool(model.network.takes_images) if model.reads_pairs else model.takes_images


def _find_summary(name: str) -> str:
    # Only embedded models come with a description.
    if name not in zoo.names():
        return ""
    described = zoo.describe(name)
    return f"{described['summary']}. It is right on {described['accuracy']:.0%} of {described['measured']}."


@api_router.get("/methods", name="methods")
async def list_methods() -> list[MethodInfo]:
    """List the methods with their papers and options, in the order of the page's menu."""
    methods = [_describe_method(name, method) for name, method in METHODS.items()]
    groups = [*MENU]
    # Methods that others have registered are in no group of the menu.
    return sorted(methods, key=lambda info: groups.index(info.group) if info.group in groups else len(groups))


def _describe_method(name: str, method: Method) -> MethodInfo:
    group, title = find_group(name)
    return MethodInfo(
        name=name,
        summary=method.summary,
        paper=method.paper,
        signed=method.signed,
        class_specific=method.class_specific,
        options=finite(dict(method.options)),
        group=group,
        title=title,
        inputs=list_inputs(name),
    )


@api_router.get("/choices", name="choices")
async def show_choices() -> dict[str, dict[str, list[str]]]:
    """List the values of options that have only a few, by input (text or image) and option."""
    return list_choices()


@api_router.get("/characters", name="characters")
async def list_invisible_characters() -> list[list[int]]:
    """List ranges of invisible characters, which a page should make visible."""
    return list(map(list, text_spans.HIDDEN))


@api_router.post("/explain", name="explain", responses=ERRORS, response_model=dict[str, Any])
async def explain(body: ExplainRequest, request: Request) -> Response:
    """Explain a prediction: the record of docs/json.md with `layers`, `classes`, `size`, `box` and `pixels`."""
    answer = await _get_dispatcher(request).explain(request, body)
    return JSONResponse(make_explanation_body(answer))


@api_router.post("/hide", name="hide", responses=ERRORS)
async def hide(body: HideRequest, request: Request) -> HideResponse:
    """Run the model with some tokens or patches hidden."""
    return await _get_dispatcher(request).hide(request, body)


@api_router.post("/curve", name="curve", responses=ERRORS)
async def compute_curve(body: CurveRequest, request: Request) -> CurveResponse:
    """Hide the most relevant features step by step, and as many in random orders for comparison."""
    return await _get_dispatcher(request).compute_curve(request, body)


@api_router.get("/progress/{ticket}", name="progress")
async def show_progress(request: Request, ticket: Ticket) -> ProgressInfo:
    """Tell how far a request is that was sent with this ticket in the header x-clearhead-ticket."""
    progress = request.app.state.worker.find_progress(ticket)
    if progress is None:
        return ProgressInfo(state="unknown", ahead=0, done=0, total=None, label="")
    state: Literal["waiting", "running"] = "running" if progress.is_running else "waiting"
    return ProgressInfo(
        state=state, ahead=progress.ahead, done=progress.done, total=progress.total, label=progress.label
    )


def _make_file_route(file_type: str) -> Callable[..., Coroutine[Any, Any, Response]]:
    async def download_file(body: ExplainRequest, request: Request) -> Response:
        """Explain a prediction in a self-contained file."""
        answer = await _get_dispatcher(request).explain(request, body)
        # In a thread, because drawing a picture would hold up all other requests.
        content = await asyncio.to_thread(render_file, answer, file_type)
        return make_file_response(content, file_type)

    return download_file


def make_file_response(content: bytes, file_type: str) -> Response:
    """Return a file that the browser saves."""
    headers = {"content-disposition": f'attachment; filename="clearhead.{file_type}"'}
    return Response(content, media_type=MEDIA_TYPES[file_type], headers=headers)


for _file_type in MEDIA_TYPES:
    api_router.add_api_route(
        f"/file/{_file_type}",
        _make_file_route(_file_type),
        methods=["POST"],
        name=_file_type,
        responses=ERRORS,
        response_class=Response,
    )


@api_router.get("/runs", name="runs")
async def list_runs(request: Request) -> list[RunInfo]:
    """List the benchmark runs of this server with their methods, metrics and classes."""
    runs = _get_runs(request)
    return [await asyncio.to_thread(runs.describe, name) for name in runs]


def read_filter(
    search: Name = "",
    slice: Slice = "all",
    gold: Name | None = None,
    predicted: Name | None = None,
) -> ExampleFilter:
    """Return which examples a request asks for."""
    return ExampleFilter(search, slice, gold, predicted)


@api_router.get("/runs/{name}/examples", name="examples", responses=LOOKUP_ERRORS)
async def list_examples(
    request: Request,
    name: Name,
    method: Name,
    metric: Name,
    chosen: Annotated[ExampleFilter, Depends(read_filter)],
    lowest: bool = False,
    start: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
) -> Examples:
    """List examples of a run, those with the highest or lowest values first; `search` looks into their texts."""
    with answer_404():
        run = _get_runs(request)[name]
        return await asyncio.to_thread(run.rank_examples, method, metric, lowest=lowest, start=start, chosen=chosen)


@api_router.get("/runs/{name}/picture", name="picture", responses={200: PNG, **LOOKUP_ERRORS}, response_class=Response)
async def show_image(request: Request, name: Name, example: Name) -> Response:
    """Return an image of a run, if the server was started with the run's data."""
    with answer_404():
        run = _get_runs(request)[name]
        content = await asyncio.to_thread(run.render_image, example, request.app.state.limits)
    return Response(content, media_type="image/png")


def list_post_paths(routers: Iterable[APIRouter]) -> frozenset[str]:
    """Return the paths that take a body; all others are read."""
    paths: set[str] = set()
    for router in routers:
        routes = (route for route in router.routes if isinstance(route, APIRoute))
        paths.update(route.path for route in routes if "POST" in (route.methods or ()))
    return frozenset(paths)

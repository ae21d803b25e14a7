"""The application: the page, and the interface it uses, which programs may use as well."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from clearhead.arrays import Array
from clearhead.attribution.method import METHODS
from clearhead.errors import ClearheadError, TooLong
from clearhead.model import zoo
from clearhead.model.model import Model
from clearhead.version import __version__
from clearhead.views import html
from clearhead.views import html_parts as markup
from clearhead.views import json_record as record
from clearhead.views import static_image as picture
from clearhead.views import text_spans as piece
from clearhead.web.job_queue import Interrupted, Overloaded, Worker
from clearhead.web.limits import LIMITS, Limits
from clearhead.web.runs import Runs
from clearhead.web.schemas import (
    CurveRequest,
    CurveResponse,
    ErrorBody,
    Examples,
    ExplainRequest,
    HideRequest,
    HideResponse,
    InputRequest,
    MethodInfo,
    ModelInfo,
    Name,
    RunInfo,
)
from clearhead.web.security import AccessPolicy, Guard
from clearhead.web.service import Answer, ExplainService

FAULTS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorBody, "description": "The body is not JSON."},
    413: {"model": ErrorBody, "description": "The body is too large."},
    422: {"model": ErrorBody, "description": "The question makes no sense here."},
    503: {"model": ErrorBody, "description": "Too much is waiting; Retry-After says when to come back."},
}
JPEG: dict[str, Any] = {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}}
POLL = 0.2
PATIENCE = "2"
SHORTEN = "Shorten it, or choose 'First part only' under 'Long texts' (in JSON, long: truncate)."
FILES = {"html": "text/html; charset=utf-8", "png": "image/png", "json": "application/json"}


def build(
    models: Mapping[str, Model], door: AccessPolicy | None = None, limits: Limits = LIMITS, runs: Runs | None = None
) -> FastAPI:
    """The page for these models and finished runs; `door` says who may come in."""
    worker = Worker(limits)
    studio = ExplainService(models, limits, worker.check)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(worker.close)

    app = FastAPI(
        title="Clearhead",
        version=__version__,
        description="Why a model decided, and what happens when parts of the input are hidden.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.worker, app.state.studio = worker, studio
    app.add_middleware(Guard, door=door or AccessPolicy(), limits=limits)
    _add_faults(app)
    _add_page(app)
    _add_lists(app, studio)
    _add_answers(app, Dispatcher(worker, studio))
    _add_runs(app, runs or Runs([]), limits)
    return app


class Dispatcher:
    """Hands questions to the worker and waits, as long as somebody waits for the answer."""

    def __init__(self, worker: Worker, studio: ExplainService) -> None:
        self.worker, self.studio = worker, studio

    async def explain(self, request: Request, question: ExplainRequest) -> Answer:
        answer: Answer = await self.ask(request, self.studio.explain, question, self.studio.group_of(question))
        return answer

    async def ask(
        self, request: Request, work: Callable[[list[Any]], Any], asked: InputRequest, group: Any = None
    ) -> Any:
        job = self.worker.submit(work, asked, group)
        answer = asyncio.wrap_future(job.future)
        try:
            return await self._wait(request, answer)
        except asyncio.CancelledError:
            raise Overloaded("The server is stopping.") from None
        finally:
            job.gone.set()
            job.future.cancel()
            answer.cancel()

    async def _wait(self, request: Request, answer: "asyncio.Future[Any]") -> Any:
        loop = asyncio.get_running_loop()
        until = loop.time() + self.worker.limits.wait
        while not answer.done():
            await asyncio.wait({answer}, timeout=POLL)
            if not answer.done() and (loop.time() > until or await request.is_disconnected()):
                raise Overloaded("That took longer than this server allows. Try a shorter input or a quicker method.")
        return answer.result()


# --- faults ----------------------------------------------------------------------------------------------------


def _fault(status: int, text: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": text}, status, headers)


def _add_faults(app: FastAPI) -> None:
    """Every error has one shape; what the user wrote is not sent back."""

    @app.exception_handler(ClearheadError)
    async def _mistake(_: Request, error: ClearheadError) -> Response:
        return _fault(422, piece.visible(str(error)))

    @app.exception_handler(TooLong)
    async def _too_long(_: Request, error: TooLong) -> Response:
        return _fault(422, piece.visible(f"{error.fact} {SHORTEN}"))

    @app.exception_handler(Overloaded)
    @app.exception_handler(Interrupted)
    async def _overloaded(_: Request, error: Exception) -> Response:
        return _fault(503, str(error), {"retry-after": PATIENCE})

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> Response:
        said = [f"{'.'.join(str(part) for part in one['loc'][1:3])}: {one['msg']}" for one in error.errors()[:3]]
        unread = any(one["type"] == "json_invalid" for one in error.errors())
        return _fault(400 if unread else 422, piece.visible("; ".join(said)[:500]))

    @app.exception_handler(HTTPException)
    async def _refused(_: Request, error: HTTPException) -> Response:
        return _fault(error.status_code, str(error.detail), dict(error.headers or {}))


# --- the page --------------------------------------------------------------------------------------------------


def _add_page(app: FastAPI) -> None:
    here = files("clearhead.web")
    page = (here / "templates" / "page.html").read_text("utf-8").replace("{{version}}", __version__)
    colors = "\n".join(markup.sheet())

    @app.get("/", include_in_schema=False)
    async def _page() -> Response:
        return HTMLResponse(page)

    @app.get("/views.css", include_in_schema=False)
    async def _colors() -> Response:
        return Response(colors, media_type="text/css")

    app.mount("/static", StaticFiles(directory=str(here / "static")), name="static")


# --- the interface ---------------------------------------------------------------------------------------------


def _add_lists(app: FastAPI, studio: ExplainService) -> None:
    @app.get("/api/models")
    async def models() -> list[ModelInfo]:
        """The models of this server: questions may name these and no others."""
        return [_listed(name, model) for name, model in studio.models.items()]

    @app.get("/api/methods")
    async def methods() -> list[MethodInfo]:
        """The methods, with their papers and options."""
        return [
            MethodInfo(
                name=name,
                summary=one.summary,
                paper=one.paper,
                signed=one.signed,
                class_specific=one.class_specific,
                options=record.finite(dict(one.options)),
            )
            for name, one in METHODS.items()
        ]

    @app.get("/api/characters")
    async def characters() -> list[tuple[int, int]]:
        """Ranges of characters that do not show themselves, which a page should make visible."""
        return list(piece.HIDDEN)


def _listed(name: str, model: Model) -> ModelInfo:
    summary = zoo.describe(name)["summary"] if name in zoo.names() else ""
    return ModelInfo(
        name=name,
        kind="image" if model.takes_images else "text",
        problem=model.problem,
        labels=model.labels,
        summary=summary,
    )


def _add_answers(app: FastAPI, desk: Dispatcher) -> None:
    @app.post("/api/explain", responses=FAULTS)
    async def explain(question: ExplainRequest, request: Request) -> dict[str, Any]:
        """Why the model decided: the record of docs/json.md with `layers`, `classes`, `size`, `box` and `pixels`."""
        return JSONResponse(answered(await desk.explain(request, question)))  # type: ignore[return-value]

    @app.post("/api/hide", responses=FAULTS)
    async def hide(asked: HideRequest, request: Request) -> HideResponse:
        """What the model says when some tokens or patches are hidden."""
        return await desk.ask(request, desk.studio.hide, asked)  # type: ignore[no-any-return]

    @app.post("/api/curve", responses=FAULTS)
    async def curve(asked: CurveRequest, request: Request) -> CurveResponse:
        """How the answer moves as the most relevant parts are hidden, beside random orders."""
        return await desk.ask(request, desk.studio.curve, asked)  # type: ignore[no-any-return]

    for kind in FILES:
        _add_file(app, desk, kind)


def _add_file(app: FastAPI, desk: Dispatcher, kind: str) -> None:
    @app.post(f"/api/file/{kind}", responses=FAULTS, name=kind, response_class=Response)
    async def file(question: ExplainRequest, request: Request) -> Response:
        """The explanation as a file that stands alone."""
        answer = await desk.explain(request, question)
        content = await asyncio.to_thread(written, answer, kind)
        headers = {"content-disposition": f'attachment; filename="clearhead.{kind}"'}
        return Response(content, media_type=FILES[kind], headers=headers)


def _add_runs(app: FastAPI, found: Runs, limits: Limits) -> None:
    @app.get("/api/runs")
    async def runs() -> list[RunInfo]:
        """The benchmark runs named at the start, with their methods and metrics."""
        return [await asyncio.to_thread(run.listed, name) for name, run in found.items()]

    @app.get("/api/runs/{name}/examples", responses={422: FAULTS[422]})
    async def examples(
        name: Name,
        method: Name,
        metric: Name,
        lowest: bool = False,
        start: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    ) -> Examples:
        """A run's examples, those with the highest or lowest values first."""
        return await asyncio.to_thread(found[name].examples, method, metric, lowest=lowest, start=start)

    @app.get("/api/runs/{name}/picture", responses={200: JPEG, 422: FAULTS[422]}, response_class=Response)
    async def picture(name: Name, example: Name) -> Response:
        """A picture of a run, where the server was started with its data."""
        content = await asyncio.to_thread(found[name].picture, example, limits)
        return Response(content, media_type="image/jpeg")

    @app.get("/runs/{name}", include_in_schema=False)
    async def told(name: str) -> Response:
        page = await asyncio.to_thread(lambda: found[name].page)
        return HTMLResponse(
            page, headers={"content-security-policy": f"{html.POLICY}; frame-ancestors 'none'; sandbox"}
        )


def answered(answer: Answer) -> dict[str, Any]:
    """The record, and what a page needs besides."""
    one = answer.explanation
    return {
        **record.finite(record.record(one, answer.spelling.text)),
        "layers": None if one.layers is None else record.finite(one.layers.tolist()),
        "classes": answer.classes,
        "size": None if one.image is None else list(one.image.size),
        "box": None if one.box is None else [float(edge) for edge in one.box],
        "pixels": None if one.pixels is None else packed(one.pixels),
    }


def packed(pixels: Array) -> dict[str, Any]:
    """A map of pixels in a fifth of the bytes: whole numbers, −127 … 127, each worth `unit`."""
    known = np.nan_to_num(pixels.astype(np.float64), posinf=0.0, neginf=0.0)
    unit = float(np.abs(known).max(initial=0.0)) / 127 or 1.0
    levels = np.rint(known / unit).astype(np.int8)
    return {"size": list(pixels.shape), "unit": unit, "levels": base64.b64encode(levels.tobytes()).decode()}


def written(answer: Answer, kind: str) -> bytes:
    """One explanation as a page, a picture or a line of JSON."""
    one = answer.explanation
    if kind == "png":
        return picture.png(picture.drawn([one]))
    text = (
        record.line(one, answer.spelling.text) if kind == "json" else html.page([html.card(one)], html.title_of([one]))
    )
    return text.encode("utf-8", "replace")

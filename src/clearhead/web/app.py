"""The FastAPI application: the page and the JSON API."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from clearhead.model.model import Model
from clearhead.version import __version__
from clearhead.web.difference import difference_router
from clearhead.web.dispatcher import Dispatcher
from clearhead.web.error_handlers import add_error_handlers
from clearhead.web.job_queue import Worker
from clearhead.web.limits import LIMITS, Limits
from clearhead.web.routes import PACKAGE, api_router, list_post_paths, page_router
from clearhead.web.runs import Runs
from clearhead.web.security import AccessPolicy, SecurityMiddleware
from clearhead.web.service import ExplainService
from clearhead.web.similarity import similarity_router
from clearhead.web.similarity_service import SimilarityService
from clearhead.web.task_routes import task_router
from clearhead.web.tasks import Tasks

API_ROUTERS = (api_router, difference_router, similarity_router, task_router)


def build_app(
    models: Mapping[str, Model],
    policy: AccessPolicy | None = None,
    limits: Limits = LIMITS,
    runs: Runs | None = None,
    tasks: Tasks | None = None,
) -> FastAPI:
    """Return the application that serves these models, finished runs and tasks."""
    app = _make_app()
    _set_state(app, models, limits)
    app.state.runs = Runs([]) if runs is None else runs
    app.state.tasks = Tasks() if tasks is None else tasks
    paths = list_post_paths(API_ROUTERS)
    app.add_middleware(SecurityMiddleware, policy=policy or AccessPolicy(), limits=limits, post_paths=paths)
    add_error_handlers(app)
    _add_routes(app)
    return app


def _make_app() -> FastAPI:
    return FastAPI(
        title="Clearhead",
        version=__version__,
        description="Explain why a model decided, and test what happens when parts of the input are hidden.",
        # FastAPI's documentation pages load scripts from another host.
        docs_url=None,
        redoc_url=None,
        lifespan=_close_worker_at_end,
    )


def _set_state(app: FastAPI, models: Mapping[str, Model], limits: Limits) -> None:
    worker = Worker(limits)
    service = ExplainService(models, limits, worker.check_interrupted, worker.note_progress)
    app.state.worker = worker
    app.state.service = service
    app.state.similarity = SimilarityService(service)
    app.state.dispatcher = Dispatcher(worker, service)
    app.state.limits = limits


def _add_routes(app: FastAPI) -> None:
    app.include_router(page_router)
    # StaticFiles refuses paths outside its folder.
    app.mount("/static", StaticFiles(directory=str(PACKAGE / "static")), name="static")
    for router in API_ROUTERS:
        app.include_router(router)


@asynccontextmanager
async def _close_worker_at_end(app: FastAPI) -> AsyncIterator[None]:
    yield
    # In a thread, because close() waits for the running forward pass.
    await asyncio.to_thread(app.state.worker.close)

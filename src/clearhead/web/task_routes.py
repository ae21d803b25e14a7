"""Routes of the data that the server was started with: its examples, their images and their predictions."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from clearhead.web.routes import ERRORS, LOOKUP_ERRORS, PNG, answer_404, read_filter
from clearhead.web.run_examples import ExampleFilter
from clearhead.web.runs import EXAMPLES_PER_PAGE
from clearhead.web.schemas import Name, PredictionProgress, PredictRequest, TaskExamples, TaskInfo, TaskOrder
from clearhead.web.service import ExplainService
from clearhead.web.tasks import PredictedTask, Tasks

MAX_EXAMPLES_PER_PAGE = 1000

task_router = APIRouter(prefix="/api")


class TaskService:
    """Predicts examples on the worker's thread."""

    def __init__(self, service: ExplainService) -> None:
        self.service = service

    def predict(self, tasks: list[PredictedTask]) -> Sequence[PredictionProgress]:
        """Predict the next examples of a task; return how many have been."""
        (task,) = tasks
        with self.service.interruptible(task.model):
            task.predict_next()
        return [task.progress]


def _get_tasks(request: Request) -> Tasks:
    tasks: Tasks = request.app.state.tasks
    return tasks


@task_router.get("/tasks", name="tasks")
async def list_tasks(request: Request) -> list[TaskInfo]:
    """List the data of this server with the models that read it."""
    return [table.describe(name) for name, table in _get_tasks(request).items()]


@task_router.get("/tasks/{name}/examples", name="task_examples", responses=LOOKUP_ERRORS)
async def list_task_examples(
    request: Request,
    name: Name,
    model: Name,
    chosen: Annotated[ExampleFilter, Depends(read_filter)],
    order: TaskOrder = "data",
    start: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    count: Annotated[int, Query(ge=1, le=MAX_EXAMPLES_PER_PAGE)] = EXAMPLES_PER_PAGE,
) -> TaskExamples:
    """List examples with what is known of their predictions; `uncertain` orders those of low probability first."""
    with answer_404():
        table = _get_tasks(request)[name]
        return await asyncio.to_thread(table.list_examples, model, order=order, start=start, count=count, chosen=chosen)


@task_router.get(
    "/tasks/{name}/picture", name="task_picture", responses={200: PNG, **LOOKUP_ERRORS}, response_class=Response
)
async def show_task_image(request: Request, name: Name, example: Name) -> Response:
    """Return an image of a task."""
    with answer_404():
        table = _get_tasks(request)[name]
        content = await asyncio.to_thread(table.render_image, example, request.app.state.limits)
    return Response(content, media_type="image/png")


@task_router.post("/predict", name="predict", responses={**ERRORS, **LOOKUP_ERRORS})
async def predict(body: PredictRequest, request: Request) -> PredictionProgress:
    """Predict a few more examples of a task; to be repeated until all are done."""
    with answer_404():
        task = _get_tasks(request)[body.task].by_model(body.model)
    service = TaskService(request.app.state.service)
    progress: PredictionProgress = await request.app.state.dispatcher.run(request, service.predict, task)
    return progress

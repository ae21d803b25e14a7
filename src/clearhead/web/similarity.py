"""The routes of two-tower models: similarities explained on both sides, as JSON and as files."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from clearhead.explanation import Explanation
from clearhead.plain import finite
from clearhead.views import html, joint_html, json_record, static_image
from clearhead.views.joint_scale import describe_shares, list_members, share_scale
from clearhead.views.scale import Scale
from clearhead.views.text_spans import escape_hidden
from clearhead.web.cache import Answer
from clearhead.web.dispatcher import Dispatcher
from clearhead.web.responses import MEDIA_TYPES, describe_scale, make_explanation_body
from clearhead.web.routes import ERRORS
from clearhead.web.similarity_schemas import SimilarityRequest
from clearhead.web.similarity_service import ComparedAnswer, SimilarityService

similarity_router = APIRouter(prefix="/api/similarity")


def _get_service(request: Request) -> SimilarityService:
    service: SimilarityService = request.app.state.similarity
    return service


def _get_dispatcher(request: Request) -> Dispatcher:
    dispatcher: Dispatcher = request.app.state.dispatcher
    return dispatcher


@similarity_router.post("", name="similarity", responses=ERRORS, response_model=dict[str, Any])
async def explain_similarity(body: SimilarityRequest, request: Request) -> Response:
    """Explain how similar a picture or a text is to one of several texts: a record for each input, on one scale."""
    answer = await _get_dispatcher(request).run(request, _get_service(request).explain, body)
    return JSONResponse(make_similarity_body(answer))


def _make_file_route(file_type: str) -> Callable[..., Coroutine[Any, Any, Response]]:
    async def download_similarity(body: SimilarityRequest, request: Request) -> Response:
        """Explain a similarity in a self-contained file; a page has all texts, the asked one first."""
        service = _get_service(request)
        answers = await _get_dispatcher(request).run(request, _choose_work(service, file_type), body)
        # In a thread, because drawing a picture would hold up all other requests.
        content = await asyncio.to_thread(_render_file, answers, file_type)
        headers = {"content-disposition": f'attachment; filename="clearhead.{file_type}"'}
        return Response(content, media_type=MEDIA_TYPES[file_type], headers=headers)

    return download_similarity


def _choose_work(service: SimilarityService, file_type: str) -> Callable[[list[SimilarityRequest]], Sequence[Any]]:
    if file_type == "html":
        return service.explain_all
    return lambda requests: [service.explain(requests)]


for _file_type in MEDIA_TYPES:
    similarity_router.add_api_route(
        f"/file/{_file_type}",
        _make_file_route(_file_type),
        methods=["POST"],
        name=f"similarity-{_file_type}",
        responses=ERRORS,
        response_class=Response,
    )


def make_similarity_body(answer: ComparedAnswer) -> dict[str, Any]:
    """Return the record of docs/json.md, with every text and what the page shows of each input."""
    joint = answer.joint
    body: dict[str, Any] = finite(json_record.record(joint, answer.method.text))
    inputs = []
    for explanation, scale in zip(list_members(joint), share_scale(joint), strict=True):
        inputs.append(_describe_input(explanation, scale, answer))
    return {
        **body,
        "label": escape_hidden(joint.label),
        "texts": [finite(text.model_dump()) for text in answer.texts],
        "summary": describe_shares(joint),
        "inputs": inputs,
    }


def _describe_input(explanation: Explanation, scale: Scale, answer: ComparedAnswer) -> dict[str, Any]:
    # Blocks and heads are those of one tower, and no view of the page joins them.
    plain = replace(explanation, layers=None, heads=None)
    body = make_explanation_body(Answer(plain, [], answer.method))
    return {**body, "scale": describe_scale(scale)}


def _render_file(answers: Sequence[ComparedAnswer], file_type: str) -> bytes:
    joints = [answer.joint for answer in answers]
    if file_type == "png":
        return static_image.png(static_image.draw(joints))
    if file_type == "json":
        return json_record.line(joints[0], answers[0].method.text).encode("utf-8", "replace")
    card = joint_html.choices(joints) if len(joints) > 1 else joint_html.card(joints[0])
    return html.page([card], html.make_title(joints[:1])).encode("utf-8", "replace")

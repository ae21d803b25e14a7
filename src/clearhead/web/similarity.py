"""The routes of two-tower models: similarities explained on both sides, as JSON and as files."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from clearhead.attribution.method import MethodSpec
from clearhead.explanation import Explanation
from clearhead.joint_explanation import JointExplanation
from clearhead.plain import finite
from clearhead.views import html, joint_html, json_record, static_image
from clearhead.views.joint_scale import describe_shares, list_members, share_scale
from clearhead.views.text_spans import escape_hidden
from clearhead.web.cache import Answer
from clearhead.web.dispatcher import Dispatcher
from clearhead.web.responses import MEDIA_TYPES, describe_scale, make_explanation_body
from clearhead.web.routes import ERRORS, make_file_response
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
        work = _choose_work(_get_service(request), file_type)
        answers = await _get_dispatcher(request).run(request, work, body)
        # In a thread, because drawing a picture would hold up all other requests.
        content = await asyncio.to_thread(WRITERS[file_type], answers)
        return make_file_response(content, file_type)

    return download_similarity


def _choose_work(service: SimilarityService, file_type: str) -> Callable[[list[SimilarityRequest]], Sequence[Any]]:
    if file_type == "html":
        return service.explain_all
    # The files have lists of answers, of which all but the page draw the first.
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
    body: dict[str, Any] = finite(json_record.record(answer.joint, answer.method.text))
    return {
        **body,
        "label": escape_hidden(answer.joint.label),
        "texts": [text.model_dump() for text in answer.texts],
        "summary": describe_shares(answer.joint),
        "inputs": _describe_inputs(answer),
    }


def _describe_inputs(answer: ComparedAnswer) -> list[dict[str, Any]]:
    described = []
    for explanation, scale in zip(list_members(answer.joint), share_scale(answer.joint), strict=True):
        described.append({**_describe_input(explanation, answer.method), "scale": describe_scale(scale)})
    return described


def _describe_input(explanation: Explanation, method: MethodSpec) -> dict[str, Any]:
    # Blocks and heads are those of one tower, and no view of the page joins them.
    plain = replace(explanation, layers=None, heads=None)
    return make_explanation_body(Answer(plain, [], method))


def _draw_png(answers: Sequence[ComparedAnswer]) -> bytes:
    return static_image.png(static_image.draw_joint(answers[0].joint))


def _write_json(answers: Sequence[ComparedAnswer]) -> bytes:
    return _encode(json_record.line(answers[0].joint, answers[0].method.text))


def _write_page(answers: Sequence[ComparedAnswer]) -> bytes:
    joints = [answer.joint for answer in answers]
    return _encode(html.page([_render_card(joints)], html.make_title(joints[0].explanations[:1])))


def _encode(text: str) -> bytes:
    # Texts of a request may contain lone surrogates, which UTF-8 cannot encode.
    return text.encode("utf-8", "replace")


def _render_card(joints: Sequence[JointExplanation]) -> str:
    # As the command line writes it.
    if len(joints) > 1:
        return joint_html.choices(joints)
    return joint_html.card(joints[0])


WRITERS: dict[str, Callable[[Sequence[ComparedAnswer]], bytes]] = {
    "html": _write_page,
    "png": _draw_png,
    "json": _write_json,
}

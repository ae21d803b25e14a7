"""The route that compares the explanations of two models for one input."""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from clearhead.drift.compare_explanations import InputDiff, compare_explanations, name_prediction
from clearhead.drift.side_by_side import list_classes
from clearhead.errors import BadInput
from clearhead.model.model import Model
from clearhead.web.cache import Answer
from clearhead.web.dispatcher import Dispatcher
from clearhead.web.routes import ERRORS
from clearhead.web.schemas import ExplainRequest
from clearhead.web.service import ExplainService

NOTE = (
    "One input does not tell a change from noise: clearhead diff compares two models on a data set, with the noise of "
    "rounding."
)

difference_router = APIRouter(prefix="/api")


class DifferenceRequest(BaseModel):
    """The same input, explained by the same method, in two models."""

    model_config = ConfigDict(extra="forbid")

    first: ExplainRequest
    second: ExplainRequest


class AgreementBody(BaseModel):
    """How far the reasons agree."""

    shift: float = Field(description="The part of the relevance that moved, 0 to 1.")
    correlation: float = Field(description="Spearman's rank correlation of the shares.")
    overlap: float = Field(description="Which part of the strongest units both have, with the same sign.")


class PredictionBody(BaseModel):
    """What a model predicts, and the class that is explained with its probability."""

    model: str
    predicted: str
    label: str
    probability: float | None


class DifferenceResponse(BaseModel):
    """Units that both models read, and how much of the relevance each has in both."""

    sentence: str
    note: str
    predictions: Annotated[list[PredictionBody], Field(min_length=2, max_length=2)]
    agreement: AgreementBody
    unit: str = Field(description="word, token or patch.")
    spans: list[tuple[int, int, int]] = Field(description="Segment, first and last-but-one character of each word.")
    grid: tuple[int, int] | None
    first: list[float]
    second: list[float]
    change: list[float] = Field(description="Share in the second model less that in the first, for each unit.")


@difference_router.post("/difference", name="difference", responses=ERRORS)
async def compare_models(body: DifferenceRequest, request: Request) -> DifferenceResponse:
    """Compare how two models explain their answers to one input, word by word or patch by patch."""
    service: ExplainService = request.app.state.service
    dispatcher: Dispatcher = request.app.state.dispatcher
    if body.first.source != body.second.source:
        raise BadInput("Two models are compared on one input: give both requests the same.")
    _require_same_classes(service, body)
    # One after the other: both may be in the cache, since the page has shown them.
    answers = [await dispatcher.explain(request, entry) for entry in (body.first, body.second)]
    return _describe(compare_explanations(*[answer.explanation for answer in answers]), answers)


def _require_same_classes(service: ExplainService, body: DifferenceRequest) -> None:
    first, second = service.find_model(body.first), service.find_model(body.second)
    # Whatever language models write can be compared.
    if _have_other_classes(first, second):
        raise BadInput(
            f"These models answer different questions: the classes of {first.name} are {list_classes(first)}, those "
            f"of {second.name} {list_classes(second)}."
        )


def _have_other_classes(first: Model, second: Model) -> bool:
    return not first.writes and set(first.labels) != set(second.labels)


def _describe(diff: InputDiff, answers: list[Answer]) -> DifferenceResponse:
    return DifferenceResponse(
        sentence=diff.sentence,
        note=NOTE,
        predictions=[_describe_prediction(answer) for answer in answers],
        agreement=AgreementBody(**vars(diff.agreement)),
        unit=diff.kind,
        spans=list(diff.spans),
        grid=diff.grid,
        first=diff.first_U.tolist(),
        second=diff.second_U.tolist(),
        change=diff.change_U.tolist(),
    )


def _describe_prediction(answer: Answer) -> PredictionBody:
    explanation = answer.explanation
    return PredictionBody(
        model=explanation.model,
        predicted=name_prediction(explanation),
        label=explanation.label,
        probability=explanation.probability,
    )

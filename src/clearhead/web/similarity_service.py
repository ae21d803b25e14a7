"""Explanations of two-tower models for the server: a picture or a text, compared with texts."""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from clearhead.api import explain
from clearhead.attribution.method import MethodSpec
from clearhead.engine.memory import image_tokens
from clearhead.errors import BadInput
from clearhead.joint_explanation import JointExplanation
from clearhead.model.batches import longest_text
from clearhead.model.model import Model
from clearhead.model.outputs import class_probabilities
from clearhead.model.similarity import encode_side, make_reading_tower
from clearhead.model.target import Target
from clearhead.web.costs import check_batch_rows, check_options
from clearhead.web.method_choice import explain_option_errors, resolve_request_method
from clearhead.web.service import ExplainService
from clearhead.web.similarity_schemas import ComparedText, SimilarityRequest
from clearhead.web.upload import decode_image


@dataclass(frozen=True)
class ComparedAnswer:
    """An explanation of a pair, what the model says of each text, and the method that was asked for."""

    joint: JointExplanation
    texts: list[ComparedText]
    method: MethodSpec


class SimilarityService:
    """Answers requests of two-tower models; not locked, because all methods run on the worker's thread."""

    def __init__(self, service: ExplainService) -> None:
        self.service = service
        self.answers: OrderedDict[bytes, ComparedAnswer] = OrderedDict()

    def find_model(self, request: SimilarityRequest) -> Model:
        """Return the requested model, or the first one that compares these inputs."""
        if request.model is None:
            return self._find_default_model(request)
        model = self.service.get_model(request.model)
        if not _compares(model, request):
            raise _cannot_compare(request.model, request)
        return model

    def _find_default_model(self, request: SimilarityRequest) -> Model:
        for model in self.service.models.values():
            if _compares(model, request):
                return model
        raise _cannot_compare("No model of this server", request)

    def explain(self, requests: list[SimilarityRequest]) -> Sequence[ComparedAnswer]:
        """Return the explanation for one text."""
        return list(map(self._explain_one, requests))

    def explain_all(self, requests: list[SimilarityRequest]) -> Sequence[list[ComparedAnswer]]:
        """Return the explanation for the asked text and then, unless it has a contrast, for every other text."""
        (request,) = requests
        asked = self._explain_one(request)
        # The others of a contrast would be other questions.
        if request.versus is not None:
            return [[asked]]
        return [[asked, *map(self._explain_one, _ask_others(request, asked))]]

    def _explain_one(self, request: SimilarityRequest) -> ComparedAnswer:
        key = _hash_request(request)
        if key not in self.answers:
            self.answers[key] = self._compute_answer(request)
        self.answers.move_to_end(key)
        self._drop_oldest()
        return self.answers[key]

    def _drop_oldest(self) -> None:
        # Answers hold their pictures, so there are as many as other inputs that are kept.
        while len(self.answers) > self.service.limits.cached_inputs:
            self.answers.popitem(last=False)

    def _compute_answer(self, request: SimilarityRequest) -> ComparedAnswer:
        model = self.find_model(request)
        method = self._find_method(model, request)
        sides = [[self._read_first(request)], request.texts]
        # Before the work is done: a text that is too long would be noticed after the picture was embedded.
        self._check_sides(model, method, sides, request.overflow)
        with explain_option_errors(method), self.service.interruptible(model):
            joint = _explain_pair(model, sides, method, request)
        return ComparedAnswer(joint, _describe_texts(model, joint, request.texts), method)

    def _find_method(self, model: Model, request: SimilarityRequest) -> MethodSpec:
        method = resolve_request_method(model, request)
        check_options(method, self.service.limits)
        return method

    def _read_first(self, request: SimilarityRequest) -> Any:
        if request.image is None:
            return request.text
        return decode_image(request.image, self.service.limits)

    def _check_sides(self, model: Model, method: MethodSpec, sides: Sequence[Any], overflow: str) -> None:
        """Raise an error if a text is too long, or if a batch of the method would take too much memory."""
        for side, sources in enumerate(sides):
            tower = make_reading_tower(model, side)
            for batch in encode_side(model, side, sources, overflow):
                # Pictures have no tokens yet, but their model says how many patches they get.
                tokens = longest_text(batch.inputs) or image_tokens(tower.config)
                check_batch_rows(tower, method, tokens, self.service.limits)


def _explain_pair(
    model: Model, sides: Sequence[Any], method: MethodSpec, request: SimilarityRequest
) -> JointExplanation:
    ((first,), texts) = sides
    target = Target(request.target, versus=request.versus)
    settings: dict[str, Any] = {"overflow": request.overflow, "check": request.check}
    joint: JointExplanation = explain(model, (first, texts), method, target, **settings)
    return joint


def _ask_others(request: SimilarityRequest, asked: ComparedAnswer) -> list[SimilarityRequest]:
    """Return requests for the other texts, the most similar first."""
    others = [index for index in _rank_texts(asked) if index != asked.joint.target.index]
    return [request.model_copy(update={"target": index}) for index in others]


def _hash_request(request: SimilarityRequest) -> bytes:
    # A digest, so that the cache does not hold every picture a second time. Of the repr: JSON of pydantic refuses lone
    # surrogates, which texts may contain.
    return hashlib.blake2b(repr(request).encode("utf-8", "replace")).digest()


def _compares(model: Model, request: SimilarityRequest) -> bool:
    # Of a two-tower model only its first input may be a picture.
    return model.reads_pairs and model.network.takes_images == (request.image is not None)


def _cannot_compare(name: str, request: SimilarityRequest) -> BadInput:
    inputs = "two texts" if request.image is None else "a picture with texts"
    return BadInput(f"{name} does not compare {inputs}. Choose another model.")


def _rank_texts(answer: ComparedAnswer) -> list[int]:
    """Return the numbers of the texts, the most similar first."""
    return sorted(range(len(answer.texts)), key=lambda index: -answer.texts[index].score)


def _describe_texts(model: Model, joint: JointExplanation, texts: Sequence[str]) -> list[ComparedText]:
    scores = [joint.diagnostics["scores"][text] for text in texts]
    described = []
    for text, score, probability in zip(texts, scores, _compute_probabilities(model, scores), strict=True):
        described.append(ComparedText(text=text, score=score, probability=probability))
    return described


def _compute_probabilities(model: Model, scores: Sequence[float]) -> list[float | None]:
    has_sigmoid = model.network.has_sigmoid
    # The softmax over a single text would be one, whatever the picture shows.
    if len(scores) == 1 and not has_sigmoid:
        return [None]
    problem = "multi-label" if has_sigmoid else "single-label"
    return list(class_probabilities(torch.tensor(scores), problem).tolist())

"""Explanations, hiding of tokens and perturbation curves for the server's models, one call at a time."""

import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from clearhead.attribution.answers import explain_with_matrix
from clearhead.attribution.batch import (
    AttributionRequest,
    TargetSets,
    TraceCache,
    attribute_batch,
    only_captured_targets,
    trace_batch,
)
from clearhead.attribution.batch_result import single_target
from clearhead.attribution.batch_sizes import Batch
from clearhead.attribution.method import MethodSpec
from clearhead.engine.trace import Trace
from clearhead.errors import BadInput, BadOption, ClearheadError
from clearhead.explanation import Explanation
from clearhead.model.focus import FocusedInput
from clearhead.model.focused_inputs import require_focus
from clearhead.model.inputs import Encoded, collate, encode
from clearhead.model.model import Model
from clearhead.model.outputs import class_probabilities
from clearhead.model.target import Target
from clearhead.perturbation.run import perturbed_logits, perturbed_scores
from clearhead.perturbation.scores import score_targets
from clearhead.progress import Observer, observe
from clearhead.registry import unknown_name
from clearhead.trust.controls import CONTROLS
from clearhead.trust.error_bars import explain_with_error_bars
from clearhead.trust.removal_check import check_explanations, count_groups
from clearhead.web import answers
from clearhead.web.cache import Answer, CachedInput, InputCache, make_target_key
from clearhead.web.costs import check_class_outputs, check_options, check_pass_size
from clearhead.web.features import make_features, mask_hidden_tokens
from clearhead.web.interruption import call_before_passes
from clearhead.web.job_queue import Interrupted
from clearhead.web.limits import Limits
from clearhead.web.method_choice import explain_option_errors, resolve_request_method
from clearhead.web.removal import RemovalTest, select_relevance
from clearhead.web.schemas import (
    ControlScores,
    CurveRequest,
    CurveResponse,
    ExplainRequest,
    HideRequest,
    HideResponse,
    InputRequest,
)
from clearhead.web.upload import decode_image

Explained = tuple[list[list[Explanation]], list[list[float]]]
"""The explanations of each input by each method, and the model's output for every class."""


class ExplainService:
    """Answers requests; not locked, because all methods run on the worker's thread."""

    def __init__(
        self,
        models: Mapping[str, Model],
        limits: Limits,
        check_interrupted: Callable[[], None] = lambda: None,
        note_progress: Observer = lambda *_: None,
    ) -> None:
        self.models = models
        self.limits = limits
        self.check_interrupted = check_interrupted
        self.note_progress = note_progress
        self.cache = InputCache(limits)

    def find_model(self, request: InputRequest) -> Model:
        """Return the requested model, or the first one that reads this type of input."""
        if request.model is None:
            return self._find_default_model(request)
        model = self.get_model(request.model)
        if model.reads_pairs:
            raise BadInput(f"{request.model} compares a picture or a text with texts: ask it under /api/similarity.")
        if not _reads(model, request):
            raise _wrong_input_type(request.model, request)
        return model

    def get_model(self, name: str) -> Model:
        """Return the model with this name on the page."""
        self._require_model(name)
        return self.models[name]

    def _require_model(self, name: str) -> None:
        if name not in self.models:
            raise unknown_name("model of this server", name, list(self.models))

    def _find_default_model(self, request: InputRequest) -> Model:
        for model in self.models.values():
            if _reads(model, request):
                return model
        if request.needs_language_model:
            raise BadInput("This server has no language model, which chat, answer, max_new_tokens and focus need.")
        raise _wrong_input_type("No model of this server", request)

    def find_method(self, request: ExplainRequest) -> MethodSpec:
        """Return the requested method; raise BadOption if it would compute too much."""
        method = resolve_request_method(self.find_model(request), request)
        check_options(method, self.limits)
        return method

    def find_batch_group(self, request: ExplainRequest) -> Hashable:
        """Return a key that is equal for requests that can share a forward pass; None if this one cannot."""
        try:
            model = self.find_model(request)
            method = self.find_method(request)
        except ClearheadError:
            return None
        # Inputs of different lengths need padding to share a batch; answers are written one after the other. A check
        # comes after the explanation, whose pass has been shared.
        if _is_computed_alone(model, request):
            return None
        return model.name, method.method.name, _freeze(method.options)

    def explain(self, requests: list[ExplainRequest]) -> Sequence[Answer | Exception]:
        """Return an answer or an error per request of one group; those without a trace share a forward pass."""
        if len(requests) > 1:
            self._explain_fresh(requests)
        return list(map(self._explain_or_fail, requests))

    def _explain_fresh(self, requests: list[ExplainRequest]) -> None:
        fresh = list(filter(self._is_fresh, requests))
        # A batch of one would only be computed without the cache of its traces.
        if len(fresh) > 1:
            self._explain_together(fresh)

    def hide(self, requests: list[HideRequest]) -> Sequence[HideResponse]:
        """Return the model's output with tokens hidden."""
        (request,) = requests
        check_class_outputs(self.find_model(request), len(request.hidden), self.limits)
        trace = self._trace(request)
        response = self._hide_tokens(trace, mask_hidden_tokens(trace, request.hidden))
        if request.controls and self._affords_controls(trace):
            response.controls = self._compare_with_random(request, trace, response.values)
        return [response]

    def _hide_tokens(self, trace: Trace, masks: torch.Tensor) -> HideResponse:
        if trace.model.writes:
            return self._hide_prompt(trace, masks)
        logits = self._run_masks(trace, masks)
        values = score_targets(logits, trace.targets[0], trace.model.problem)
        classes = [compute_class_outputs(trace.model, row) for row in logits]
        return HideResponse(values=values.tolist(), classes=classes, controls=None)

    def _hide_prompt(self, trace: Trace, masks: torch.Tensor) -> HideResponse:
        """Return the score of an answer with tokens of its prompt hidden."""
        features = make_features(trace, "token")
        with self.interruptible(trace.model):
            (scores,) = perturbed_scores(trace.model, trace.inputs, [masks], trace.targets, [features])
        return HideResponse(values=scores.tolist(), classes=[[] for _ in masks], controls=None)

    def _affords_controls(self, trace: Trace) -> bool:
        return CONTROLS * trace.mask_BT.shape[1] <= self.limits.max_control_tokens

    def _compare_with_random(self, request: HideRequest, trace: Trace, values: list[float]) -> list[ControlScores]:
        test = self._make_test(request, trace, request.unit)
        with self.interruptible(trace.model):
            return test.compare(request.hidden, values)

    def compute_curve(self, requests: list[CurveRequest]) -> Sequence[CurveResponse]:
        """Return the target's score as the most relevant features are hidden, and as random ones are."""
        (request,) = requests
        explanation = self._explain_one(request).explanation
        relevance = select_relevance(explanation, request.block)
        trace = self._trace(request)
        test = self._make_test(request, trace, request.unit)
        with self.interruptible(trace.model):
            return [test.compute_curve(relevance, explanation.word_reduction)]

    def _make_test(self, request: InputRequest, trace: Trace, unit: str) -> RemovalTest:
        """Return the test of an input; random scores are the same for all methods, and kept with the input."""
        _, cached = self._find_input(request)
        key = (unit, make_target_key(trace.targets[0]))
        return RemovalTest(trace, unit, cached.random_scores.setdefault(key, {}))

    def _find_input(self, request: InputRequest) -> tuple[Model, CachedInput]:
        """Return the model of the request and the cache entry of its input."""
        model = self.find_model(request)
        key = (model.name, request.overflow, _hash_source(request))
        return model, self.cache.get(key, lambda: self._encode(model, request))

    def _encode(self, model: Model, request: InputRequest) -> Encoded:
        if model.writes:
            with self.interruptible(model):
                return answers.encode_request(model, request, self.limits)
        if request.output_focus is not None:
            require_focus(model)
        source = FocusedInput(self._decode_source(request), request.output_focus)
        return encode(model, source, overflow=request.overflow)

    def _decode_source(self, request: InputRequest) -> Any:
        if request.image is None:
            return request.source
        return decode_image(request.image, self.limits)

    def _trace(self, request: InputRequest, methods: Sequence[MethodSpec] = ()) -> Trace:
        """Return the trace of one input for its target; all targets and methods share one forward pass.

        Hiding tokens needs no more of a trace than the input, the target and the logits, so it names no methods.
        """
        model, cached = self._find_input(request)
        target = _make_target(model, cached, request)
        attribution = AttributionRequest(model, methods, [target], cache=cached.traces)
        with self.interruptible(model):
            return trace_batch(attribution, _make_batch(model, [cached]))

    def _attribute(
        self,
        model: Model,
        methods: Sequence[MethodSpec],
        inputs: Sequence[CachedInput],
        targets: Sequence[Target],
        cache: TraceCache | None = None,
    ) -> Explained:
        """Explain inputs of one model in one batch, in the attribution loop that `clearhead.explain` runs as well."""
        logits: dict[int, torch.Tensor] = {}

        def note_logits(trace: Trace, indices: Sequence[int]) -> TargetSets:
            logits.update(zip(indices, trace.logits, strict=True))
            return only_captured_targets(trace, indices)

        request = AttributionRequest(model, methods, targets, note_logits, cache=cache)
        with self.interruptible(model):
            results = attribute_batch(request, _make_batch(model, inputs))
        classes = [compute_class_outputs(model, logits[index]) for index in range(len(inputs))]
        return list(map(single_target, results)), classes

    @contextmanager
    def interruptible(self, model: Model) -> Iterator[None]:
        """Check before every forward pass and after every step inside whether a client still waits for the answer."""
        # Steps, because some methods compute for minutes without a forward pass.
        with call_before_passes(model, self.check_interrupted), observe(self.note_progress):
            yield

    def _is_fresh(self, request: ExplainRequest) -> bool:
        """Return whether the request is valid and needs a forward pass."""
        try:
            model, cached = self._find_input(request)
            check_pass_size(model, self.find_method(request), cached.encoded, self.limits)
        except ClearheadError:
            return False
        return not cached.traces and _make_answer_key(request) not in cached.answers

    def _explain_together(self, requests: list[ExplainRequest]) -> None:
        """Explain requests of one group in one forward pass and cache the answers."""
        model = self.find_model(requests[0])
        method = self.find_method(requests[0])
        inputs = [self._find_input(request)[1] for request in requests]
        targets = [_make_target(model, cached, request) for cached, request in zip(inputs, requests, strict=True)]
        try:
            # Without a cache: a trace of the batch would hold the memory of all its inputs.
            rows, classes = self._attribute(model, [method], inputs, targets)
        except Interrupted:
            raise
        except Exception:
            # One bad request must not fail the others: each is explained alone afterwards and gets its own error.
            return
        for request, cached, (explanation,), outputs in zip(requests, inputs, rows, classes, strict=True):
            cached.answers[_make_answer_key(request)] = Answer(explanation, outputs, method)

    def _explain_or_fail(self, request: ExplainRequest) -> Answer | Exception:
        try:
            return self._explain_one(request)
        except Exception as error:
            return error

    def _explain_one(self, request: ExplainRequest) -> Answer:
        model, cached = self._find_input(request)
        key = _make_answer_key(request)
        if key not in cached.answers:
            method = self.find_method(request)
            check_pass_size(model, method, cached.encoded, self.limits)
            with explain_option_errors(method):
                cached.answers[key] = self._compute_answer(model, method, cached, request)
        return cached.answers[key]

    def _compute_answer(self, model: Model, method: MethodSpec, cached: CachedInput, request: ExplainRequest) -> Answer:
        if request.check:
            rows, (classes,) = self._explain_and_check(model, method, cached, request)
        else:
            rows, (classes,) = self._explain_input(model, [method], cached, request)
        ((explanation,),) = rows
        return Answer(explanation, classes, method)

    def _explain_input(
        self, model: Model, methods: Sequence[MethodSpec], cached: CachedInput, request: ExplainRequest
    ) -> Explained:
        if request.matrix:
            return self._explain_every_step(model, methods, request)
        return self._attribute(model, methods, [cached], [_make_target(model, cached, request)], cached.traces)

    def _explain_and_check(
        self, model: Model, method: MethodSpec, cached: CachedInput, request: ExplainRequest
    ) -> Explained:
        """Explain with error bars and a check, as `clearhead.explain` does."""

        def explain(planned: Sequence[MethodSpec]) -> Explained:
            if list(planned) != [method]:
                return self._explain_input(model, planned, cached, request)
            # The page shows an explanation before its check: most methods have been computed then.
            answer = self._explain_one(request.model_copy(update={"check": False}))
            return [[answer.explanation]], [answer.classes]

        rows, classes = explain_with_error_bars(model, [method], explain)
        groups = count_groups(request.check, model, 1)
        with self.interruptible(model):
            return check_explanations(model, collate(model, [cached.encoded]), rows, groups), classes

    def _explain_every_step(self, model: Model, methods: Sequence[MethodSpec], request: ExplainRequest) -> Explained:
        _require_writer(model)
        trace = self._trace(request, methods)
        with self.interruptible(model):
            return [[explain_with_matrix(trace, method) for method in methods]], [[]]

    def _run_masks(self, trace: Trace, masks: torch.Tensor) -> torch.Tensor:
        with self.interruptible(trace.model):
            return perturbed_logits(trace.model, trace.inputs, [masks], [make_features(trace, "token")])[0]


def _is_computed_alone(model: Model, request: ExplainRequest) -> bool:
    return not model.can_pad or model.writes or bool(request.check)


def _require_writer(model: Model) -> None:
    if not model.writes:
        raise BadOption(f"matrix=true needs a language model: {model.name} does not write.")


def _hash_source(request: InputRequest) -> bytes:
    # A digest, so that the cache does not hold every text and image a second time.
    source = (request.source, request.answer, request.max_new_tokens, request.output_focus)
    return hashlib.blake2b(repr(source).encode("utf-8", "replace")).digest()


def compute_class_outputs(model: Model, logits: torch.Tensor) -> list[float]:
    """Return the probability of each class, the number of a regression, or nothing for spans and masked words."""
    # A page has no use for the probability of every word of a vocabulary.
    if logits.dim() != 1 or model.names_words:
        return []
    # class_probabilities would squash the number of a regression with a sigmoid.
    if model.problem == "regression":
        return logits.double().tolist()
    return class_probabilities(logits, model.problem).tolist()


def _make_target(model: Model, cached: CachedInput, request: InputRequest) -> Target:
    if model.writes:
        return answers.make_target(model, cached.encoded, request)
    return Target(request.target, versus=request.versus, span=request.span)


def _make_batch(model: Model, inputs: Sequence[CachedInput]) -> Batch:
    return Batch(range(len(inputs)), collate(model, [cached.encoded for cached in inputs]))


def _make_answer_key(request: ExplainRequest) -> Hashable:
    target = (request.target, request.versus, request.span, request.focus)
    return request.method, _freeze(request.options), target, request.matrix, request.check


def _freeze(options: Mapping[str, Any]) -> str:
    # Sorted, so that the order in which options were given does not matter.
    return str(sorted(options.items()))


def _reads(model: Model, request: InputRequest) -> bool:
    # Two-tower models have requests of their own.
    if model.reads_pairs:
        return False
    if request.needs_language_model:
        return model.writes
    return model.takes_images == (request.image is not None)


def _wrong_input_type(name: str, request: InputRequest) -> BadInput:
    if request.needs_language_model:
        return BadInput(f"{name} is no language model, which chat, answer, max_new_tokens and focus need.")
    input_type = "texts" if request.image is None else "images"
    return BadInput(f"{name} does not read {input_type}. Choose another model.")

"""The models and what is remembered of the last inputs: explaining, hiding and curves, one call at a time."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from clearhead.attribution.assemble import explain_trace
from clearhead.attribution.method import MethodSpec, parse_method
from clearhead.engine.trace import Trace, capture
from clearhead.errors import BadInput, BadOption, ClearheadError
from clearhead.explanation import Explanation
from clearhead.model.inputs import Encoded, collate, encode
from clearhead.model.model import Model
from clearhead.model.target import Target
from clearhead.perturbation.features import group_features
from clearhead.perturbation.run import perturbed_logits, score_targets
from clearhead.registry import unknown_name
from clearhead.web.job_queue import Interrupted
from clearhead.web.limits import Limits
from clearhead.web.schemas import CurveRequest, CurveResponse, ExplainRequest, HideRequest, HideResponse, InputRequest
from clearhead.web.upload import picture

STEPS = 20
IMAGE_STEPS = 10
ORDERS = 5
COUNTED = ("samples", "steps", "segments", "window", "batch", "top")


@dataclass(frozen=True)
class Answer:
    """An explanation, and what the model gives every class."""

    explanation: Explanation
    classes: list[float]
    spelling: MethodSpec


@dataclass
class Remembered:
    """What is known of one input of one model: its encoding, its traces by target, its answers."""

    encoded: Encoded
    traces: dict[Any, Trace] = field(default_factory=dict)
    answers: dict[Any, Answer] = field(default_factory=dict)
    random: dict[Any, list[list[float]]] = field(default_factory=dict)

    @property
    def squares(self) -> int:
        """Token pairs of all traces: what their attention maps cost."""
        return sum(trace.mask_BT.shape[1] ** 2 for trace in self.traces.values())


class ExplainService:
    """Every method here runs in the worker's thread, so nothing is locked."""

    def __init__(self, models: Mapping[str, Model], limits: Limits, check: Callable[[], None] = lambda: None) -> None:
        self.models, self.limits, self.check = models, limits, check
        self._known: OrderedDict[Any, Remembered] = OrderedDict()

    # --- what was asked ---------------------------------------------------------------------------------------

    def model_of(self, asked: InputRequest) -> Model:
        """The model that was named at the start of the server, or the first that reads this kind of input."""
        if asked.model is not None and asked.model not in self.models:
            raise unknown_name("model of this server", asked.model, list(self.models))
        fitting = (one for one in self.models.values() if one.takes_images == (asked.image is not None))
        found = self.models[asked.model] if asked.model is not None else next(fitting, None)
        if found is None or found.takes_images != (asked.image is not None):
            kind = "a picture" if asked.image is not None else "a text"
            raise BadInput(f"{asked.model or 'No model of this server'} does not read {kind}. Choose another model.")
        return found

    def spelling_of(self, question: ExplainRequest) -> MethodSpec:
        found = parse_method(question.method, **question.options)
        for name in COUNTED:
            value = found.options.get(name)
            if isinstance(value, int | float) and value > self.limits.samples:
                raise BadOption(f"{name}={value} is more than this server computes: at most {self.limits.samples}.")
        return found

    def group_of(self, question: ExplainRequest) -> Any:
        """Questions of one group can share a forward pass; None where this one cannot."""
        try:
            model, spelling = self.model_of(question), self.spelling_of(question)
        except ClearheadError:
            return None
        return (model.name, spelling.method.name, str(sorted(spelling.options.items()))) if model.can_pad else None

    def _remember(self, asked: InputRequest) -> tuple[Model, Remembered]:
        model = self.model_of(asked)
        key = (model.name, asked.long, hashlib.blake2b(repr(asked.source).encode("utf-8", "replace")).digest())
        if key not in self._known:
            source = picture(asked.image, self.limits) if asked.image is not None else asked.source
            self._known[key] = Remembered(encode(model, source, long=asked.long))
        self._known.move_to_end(key)
        self._forget()
        return model, self._known[key]

    def _forget(self) -> None:
        """Keeps the answers of the last inputs, and the traces, which are large, of fewer."""
        while len(self._known) > self.limits.inputs:
            self._known.popitem(last=False)
        squares = 0
        for place, known in enumerate(reversed(self._known.values())):
            squares += known.squares
            if place and (place >= self.limits.traces or squares > self.limits.squares):
                known.traces.clear()
            _shorten(known.answers, self.limits.answers)
            _shorten(known.random, self.limits.traces)
            _shorten(known.traces, self.limits.traces)

    def trace(self, asked: InputRequest) -> Trace:
        """The trace of one input for its target: one forward pass, whatever is asked of it later."""
        model, known = self._remember(asked)
        if None not in known.traces:
            with self._interruptible(model):
                known.traces[None] = capture(model, collate(model, [known.encoded]))
        found = known.traces[None].with_target(target_of(asked))
        return known.traces.setdefault(_key(found.targets[0]), found)

    @contextmanager
    def _interruptible(self, model: Model) -> Iterator[None]:
        """Inside, every forward pass first asks whether somebody still waits."""
        hook = model.network.register_forward_pre_hook(lambda *_: self.check())
        try:
            yield
        finally:
            hook.remove()

    # --- answers ----------------------------------------------------------------------------------------------

    def explain(self, questions: list[ExplainRequest]) -> Sequence[Answer | Exception]:
        """One answer or error per question; several of one group share a forward pass where none has one yet."""
        fresh = [question for question in questions if len(questions) > 1 and self._is_fresh(question)]
        if len(fresh) > 1:
            self._explain_together(fresh)
        return [_tried(self._explain_one, question) for question in questions]

    def _is_fresh(self, question: ExplainRequest) -> bool:
        try:
            _, known = self._remember(question)
        except ClearheadError:
            return False
        return not known.traces and self._place(question) not in known.answers

    def _explain_together(self, questions: list[ExplainRequest]) -> None:
        """Leaves the answers where each question will find them; where that fails, each is tried alone."""
        model, spelling = self.model_of(questions[0]), self.spelling_of(questions[0])
        several = [self._remember(question)[1] for question in questions]
        try:
            with self._interruptible(model):
                batch = collate(model, [known.encoded for known in several])
                trace = capture(model, batch, [target_of(question) for question in questions])
                found = explain_trace(trace, spelling)
        except Interrupted:
            raise
        except Exception:
            return
        for row, (question, known) in enumerate(zip(questions, several, strict=True)):
            known.answers[self._place(question)] = Answer(found[row], shares(model, trace.logits[row]), spelling)

    def _explain_one(self, question: ExplainRequest) -> Answer:
        model, known = self._remember(question)
        place = self._place(question)
        if place not in known.answers:
            trace, spelling = self.trace(question), self.spelling_of(question)
            with self._interruptible(model), _blaming(spelling):
                (found,) = explain_trace(trace, spelling)
            known.answers[place] = Answer(found, shares(model, trace.logits[0]), spelling)
        return known.answers[place]

    def _place(self, question: ExplainRequest) -> Any:
        return (question.method, str(sorted(question.options.items())), _key(target_of(question)))

    # --- tests ------------------------------------------------------------------------------------------------

    def hide(self, asked: list[HideRequest]) -> Sequence[HideResponse]:
        """What the model says when tokens are hidden."""
        (one,) = asked
        trace = self.trace(one)
        places = token_places(trace)
        masks = torch.ones(len(one.hidden), len(places), dtype=torch.bool)
        for row, hidden in zip(masks, one.hidden, strict=True):
            row[[_unit(places, place) for place in hidden]] = False
        logits = self._hidden_logits(trace, masks)
        values = score_targets(logits, trace.targets[0], trace.model.problem).tolist()
        return [HideResponse(values=values, classes=[shares(trace.model, row) for row in logits])]

    def curve(self, asked: list[CurveRequest]) -> Sequence[CurveResponse]:
        """The most relevant parts hidden step by step, beside random orders of the same parts."""
        (one,) = asked
        explanation = self._explain_one(ExplainRequest(**one.model_dump(exclude={"unit"}))).explanation
        trace = self.trace(one)
        parts = unit_parts(trace, one.unit)
        ranked = sorted(parts, key=lambda part: -float(explanation.relevance[part].sum()))
        steps = min(len(parts), IMAGE_STEPS if trace.is_image else STEPS)
        counts = sorted({round(step * len(parts) / steps) for step in range(steps + 1)})
        random = self._random(one, trace, parts, counts)
        return [
            CurveResponse(
                order=ranked,
                counts=counts,
                values=self._along(trace, [ranked], counts)[0],
                random=np.mean(random, 0).tolist(),
                low=np.min(random, 0).tolist(),
                high=np.max(random, 0).tolist(),
            )
        ]

    def _random(
        self, asked: CurveRequest, trace: Trace, parts: list[list[int]], counts: list[int]
    ) -> list[list[float]]:
        """Random orders are the same for every method of an input, so they are computed once."""
        _, known = self._remember(asked)
        key = (asked.unit, _key(trace.targets[0]))
        if key not in known.random:
            orders = [np.random.default_rng(seed).permutation(len(parts)) for seed in range(ORDERS)]
            known.random[key] = self._along(trace, [[parts[place] for place in order] for order in orders], counts)
        return known.random[key]

    def _along(self, trace: Trace, orders: list[list[list[int]]], counts: list[int]) -> list[list[float]]:
        places = token_places(trace)
        masks = torch.ones(len(orders), len(counts), len(places), dtype=torch.bool)
        for number, order in enumerate(orders):
            for row, count in zip(masks[number], counts, strict=True):
                row[[places[place] for part in order[:count] for place in part]] = False
        logits = self._hidden_logits(trace, masks.flatten(0, 1))
        values = score_targets(logits, trace.targets[0], trace.model.problem)
        return values.reshape(len(orders), len(counts)).tolist()

    def _hidden_logits(self, trace: Trace, masks: torch.Tensor) -> torch.Tensor:
        with self._interruptible(trace.model):
            return perturbed_logits(trace.model, trace.inputs, [masks])[0]


def _shorten(kept: dict[Any, Any], most: int) -> None:
    """Lets the oldest go; the forward pass, under None, came first and stays with its traces."""
    for key in [key for key in kept if key is not None][: max(0, len(kept) - most)]:
        del kept[key]


def target_of(asked: InputRequest) -> Target:
    return Target(asked.target, versus=asked.versus, span=asked.span)


def _key(target: Target) -> Any:
    return (target.index, target.versus, target.span)


def shares(model: Model, logits: torch.Tensor) -> list[float]:
    """What the model gives each class; its number for a regression, nothing for spans."""
    if logits.dim() != 1:
        return []
    values = logits.double()
    if model.problem != "regression":
        values = values.softmax(-1) if model.problem == "single-label" else values.sigmoid()
    return values.tolist()


def token_places(trace: Trace) -> dict[int, int]:
    """For each token that can be hidden, its number among those."""
    special = [place < trace.leading for place in range(trace.mask_BT.shape[1])]
    special = special if trace.is_image else list(trace.inputs.items[0].special)
    return {place: number for number, place in enumerate(np.flatnonzero(~np.array(special)).tolist())}


def unit_parts(trace: Trace, unit: str) -> list[list[int]]:
    """Token places of every word, token or patch, in reading order."""
    places = token_places(trace)
    item = trace.inputs.items[0]
    if trace.is_image or unit == "token" or item.offsets is None:
        return [[place] for place in places]
    (units,) = group_features(trace.model, trace.inputs, "word")
    found: dict[int, list[int]] = {}
    for place in places:
        found.setdefault(int(units.labels[place]), []).append(place)
    return list(found.values())


def _unit(places: Mapping[int, int], place: int) -> int:
    if place not in places:
        raise BadInput(f"Token {place} cannot be hidden: it is special, or the input does not have so many.")
    return places[place]


@contextmanager
def _blaming(spelling: MethodSpec) -> Iterator[None]:
    """A method that stumbles over the options it was given is the question's fault."""
    try:
        yield
    except (ClearheadError, Interrupted):
        raise
    except Exception as error:
        if not spelling.options:
            raise
        raise BadOption(f"'{spelling.method.name}' cannot work with these options.") from error


def _tried(work: Callable[[Any], Answer], question: Any) -> Answer | Exception:
    try:
        return work(question)
    except Exception as error:
        return error

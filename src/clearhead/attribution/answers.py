"""Explain the answers of language models: from prompts to explanations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from clearhead.answer_explanation import AnswerExplanation, Focus, find_steps
from clearhead.arrays import Array
from clearhead.attribution.assemble import collect_refusal, explain_attribution, explain_trace
from clearhead.attribution.batch import (
    AttributionRequest,
    attribute_batches,
    can_go_blockwise,
    capture_batch,
    read_gradients_only,
)
from clearhead.attribution.batch_result import single_target
from clearhead.attribution.batch_sizes import make_batches
from clearhead.attribution.method import Attribution, MethodSpec, widen
from clearhead.engine.memory import fits_in_memory
from clearhead.engine.step_trace import StepTrace, split_targets
from clearhead.engine.trace import Trace
from clearhead.errors import BadInput, BadOption
from clearhead.explanation import Explanation
from clearhead.model.answer_inputs import answer_prompt, encode_prompt, is_token_ids, tokenise_foil
from clearhead.model.batches import Answer
from clearhead.model.inputs import Encoded, EncodedList, collate
from clearhead.model.model import Model
from clearhead.model.picture_prompts import PicturePrompt, has_pictures
from clearhead.model.sources import Sources, find_sources, insert_sources
from clearhead.model.target import LOG_PROB, SCALES, AnswerTarget


@dataclass(frozen=True)
class AnswerOptions:
    """What of an answer is explained, and against what.

    `answer` is given, as a text or as token ids, or, if None, generated with the options in `generation`; `versus` is
    another answer of as many tokens. `focus` is a part of the answer (see `Focus`). `matrix` asks for the relevance of
    every single step. `scale` is "log-prob" or "logit", without a foil. `sources` are parts of the prompt (see
    `Sources`).
    """

    answer: str | Sequence[str] | Sequence[int] | None = None
    versus: str | Sequence[str] | None = None
    focus: Focus = None
    matrix: bool = False
    scale: str | None = None
    generation: Mapping[str, Any] = field(default_factory=dict)
    sources: Any = None

    @property
    def is_default(self) -> bool:
        return self == AnswerOptions()


def encode_answers(
    model: Model, prompts: Sequence[PicturePrompt], options: AnswerOptions
) -> tuple[dict[int, Encoded], list[AnswerTarget]]:
    """Return each prompt with its answer, by number, and what of the answers is explained."""
    _validate_options(options)
    answers = _per_prompt("answer", options.answer, len(prompts))
    foils = _per_prompt("versus", options.versus, len(prompts))
    sources = _sources_per_prompt(options.sources, len(prompts))
    embed = any(map(has_pictures, prompts))
    encoded = {}
    targets = []
    for index, prompt in enumerate(prompts):
        full_prompt = insert_sources(prompt, sources[index])
        encoded_prompt = encode_prompt(model, full_prompt, embed=embed)
        spans = find_sources(encoded_prompt.item, full_prompt, sources[index])
        row = answer_prompt(model, encoded_prompt, answers[index], options.generation)
        encoded[index] = replace(row, item=replace(row.item, sources=spans))
        targets.append(choose_target(model, encoded_prompt, row, foils[index], options))
    return encoded, targets


def explain_answers(
    request: AttributionRequest, encoded: Mapping[int, Encoded], batch_size: int | None = None, *, matrix: bool = False
) -> list[list[Explanation]]:
    """Return for each prompt, in order, the explanations of its answer by each method."""
    if matrix:
        return [list(explain_steps(request, index, row).values()) for index, row in encoded.items()]
    batches = make_batches(request.model, EncodedList(list(encoded.values())), batch_size)
    results = dict(attribute_batches(request, batches))
    return [single_target(results[index]) for index in encoded]


def _validate_options(options: AnswerOptions) -> None:
    if options.scale not in (None, *SCALES):
        raise BadOption(f"Invalid scale={options.scale!r}. Available: {', '.join(SCALES)}.")
    if options.versus is not None and options.scale == LOG_PROB:
        raise BadOption("Against another answer the difference of logits is explained: leave out scale.")


def _per_prompt(name: str, value: Any, count: int) -> list[Any]:
    if value is None or isinstance(value, str):
        return [value] * count
    # Token ids are the answer to a single prompt.
    if is_token_ids(value) and count == 1:
        return [value]
    if not isinstance(value, list | tuple) or len(value) != count or is_token_ids(value):
        raise BadInput(f"'{name}' is one text for all prompts or a list with one for each of the {count}.")
    return list(value)


def _sources_per_prompt(sources: Any, count: int) -> list[Sources]:
    """Return the sources of each prompt: one division for all, or a list with as many lists."""
    if not isinstance(sources, list | tuple) or not sources or not all(map(_is_division, sources)):
        return [sources] * count
    if len(sources) != count:
        raise BadInput(f"'sources' has lists for {len(sources)} prompts, but there are {count}: give one for each.")
    return list(sources)


def _is_division(value: Any) -> bool:
    """Return whether this divides a whole prompt, rather than being a text or a pair of characters."""
    is_pair = isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(end, int) for end in value)
    return isinstance(value, list | tuple | Mapping) and not is_pair


def choose_target(
    model: Model, encoded_prompt: Encoded, answered: Encoded, foil: str | None, options: AnswerOptions
) -> AnswerTarget:
    """Return what is explained of the answer that a prompt was given."""
    answer = answered.item.answer
    assert answer is not None
    steps = find_steps(answer.text, answer.offsets, options.focus)
    foil_ids = None
    if foil is not None:
        foil_ids = _tokenise_foil(model, encoded_prompt, foil, answer, steps)
    return _make_target(answer, steps, foil_ids, options.scale)


def _tokenise_foil(model: Model, prompt: Encoded, foil: str, answer: Answer, steps: Sequence[int]) -> tuple[int, ...]:
    """Return the foil's tokens in place of the explained steps."""
    ids = tokenise_foil(model, prompt, foil, answer, steps[0])
    if len(ids) != len(steps):
        raise BadInput(
            f"The foil {foil!r} has {_count_tokens(ids)}, but {_name_steps(answer, steps)} has {len(steps)}: step by "
            f"step they are compared, so choose a foil of the same length{_advise_focus(answer, steps)}"
        )
    if tuple(ids) == tuple(answer.ids[step] for step in steps):
        raise BadInput(f"The foil {foil!r} is the answer itself: choose another.")
    return tuple(ids)


def _count_tokens(ids: Sequence[int]) -> str:
    return "1 token" if len(ids) == 1 else f"{len(ids)} tokens"


def _name_steps(answer: Answer, steps: Sequence[int]) -> str:
    """Return the explained words in quotes."""
    if len(steps) == len(answer.ids):
        return f"the answer {answer.text!r}"
    start, end = answer.offsets[steps[0]][0], answer.offsets[steps[-1]][-1]
    return f"the focus {answer.text[start:end]!r}, in whose place it stands,"


def _advise_focus(answer: Answer, steps: Sequence[int]) -> str:
    # A focus that is set already is no advice.
    if len(steps) == len(answer.ids):
        return ", or a focus on one word and a foil in its place."
    return "."


def _make_target(
    answer: Answer, steps: tuple[int, ...], foil: tuple[int, ...] | None, scale: str | None
) -> AnswerTarget:
    tokens = tuple(answer.ids[step] for step in steps)
    return AnswerTarget(steps=steps, tokens=tokens, foil=foil, scale=scale or LOG_PROB)


def explain_steps(request: AttributionRequest, index: int, row: Encoded) -> dict[int, Explanation]:
    """Explain one answer, and each of its steps, from one forward pass; return explanations by the method's index."""
    trace = _trace_for_steps(request, index, row)
    explanations: dict[int, Explanation] = {}
    for number, spec in request.active_specs.items():
        with collect_refusal(spec, request.refused):
            explanations[number] = explain_with_matrix(trace, spec)
    return explanations


def _explain_together(trace: Trace, spec: MethodSpec) -> Explanation:
    """Explain an answer and each of its steps by a method that scores them all by the same passes."""
    attribution = spec(StepTrace(trace, [*trace.targets, *list_steps(trace)]))
    whole = Attribution(attribution.relevance_BT[:1], diagnostics=attribution.diagnostics[:1])
    (explanation,) = explain_attribution(trace, spec, whole)
    assert isinstance(explanation, AnswerExplanation)
    return replace(explanation, matrix=_to_array(attribution.relevance_BT[1:]))


def _to_array(relevance_BT: Tensor) -> Array:
    array: Array = widen(relevance_BT).detach().cpu().numpy()
    return array


def explain_with_matrix(trace: Trace, spec: MethodSpec) -> Explanation:
    """Explain the answer of a trace, with the relevance of each of its steps."""
    # Methods over perturbed inputs score every step from the same passes.
    if spec.method.shares_passes:
        return _explain_together(trace, spec)
    (explanation,) = explain_trace(trace, spec)
    assert isinstance(explanation, AnswerExplanation)
    return replace(explanation, matrix=compute_matrix(trace, spec))


def _trace_for_steps(request: AttributionRequest, index: int, row: Encoded) -> Trace:
    model = request.model
    specs = list(request.active_specs.values())
    inputs = collate(model, [row])
    is_blockwise = not fits_in_memory(model, inputs) and can_go_blockwise(model, specs)
    # On a GPU the passes of all steps run at once, for which fused attention has no rule.
    gradients_only = model.device.type == "cpu" and read_gradients_only(specs)
    targets = request.targets_at([index])
    return capture_batch(model, inputs, targets, blockwise=is_blockwise, gradients_only=gradients_only)


def compute_matrix(trace: Trace, spec: MethodSpec) -> Array:
    """Return the relevance of every token for every step of the answer (steps × tokens)."""
    rows = []
    with_maps = not read_gradients_only([spec])
    with_relevance = "relevance" in spec.needs
    for step_trace in split_targets(trace, list_steps(trace), with_maps=with_maps, with_relevance=with_relevance):
        rows.append(_to_array(spec(step_trace).relevance_BT))
    return np.concatenate(rows)


def list_steps(trace: Trace) -> list[AnswerTarget]:
    """Return a target for every step of the answer, contrasted with the foil where the trace is."""
    answer = trace.inputs.items[0].answer
    target = trace.targets[0]
    assert answer is not None and isinstance(target, AnswerTarget)
    foils = dict(zip(target.steps, target.foil or (), strict=False))
    steps = []
    for step in range(len(answer.ids)):
        foil = (foils[step],) if step in foils else None
        steps.append(_make_target(answer, (step,), foil, target.scale))
    return steps

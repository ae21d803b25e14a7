"""explain() and compare(): from raw inputs to explanations."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from clearhead.answer_explanation import Focus
from clearhead.attribution.answers import AnswerOptions, encode_answers, explain_answers
from clearhead.attribution.batch import AttributionRequest, explain_batches, validate_request
from clearhead.attribution.batch_result import TARGET, BatchResult, CollectedResults
from clearhead.attribution.batch_sizes import Batch, make_batches, split_inputs
from clearhead.attribution.method import MethodSpec, parse_method, resolve_method
from clearhead.attribution.names import DEFAULT
from clearhead.attribution.windows import explain_windows
from clearhead.data.objects import as_plain_inputs, as_plain_list
from clearhead.engine.streams import prefetch
from clearhead.errors import BadOption
from clearhead.explanation import Comparison, Explanation, Explanations
from clearhead.model.chats import is_chat
from clearhead.model.inputs import (
    Encoded,
    EncodedList,
    EncodedRows,
    Inputs,
    as_input_list,
    encode_chunks,
    from_tensors,
    is_single,
    validate_overflow,
)
from clearhead.model.loading import as_model
from clearhead.model.model import Model, max_tokens
from clearhead.model.picture_prompts import has_pictures
from clearhead.model.placement import with_precision
from clearhead.model.target import TargetLike, list_targets
from clearhead.spec import as_list
from clearhead.trust.error_bars import explain_with_error_bars
from clearhead.trust.removal_check import check_batches, count_groups, validate_check

Explained = tuple[list[list[Explanation]], Iterator[Batch]]
"""The explanations of each input, and the inputs in batches, which a check goes through again."""
ByMethod = tuple[Sequence[Sequence[Explanation]], Iterator[Batch]]
"""The same with the explanations by each method."""


def explain(  # noqa: PLR0913 - the signature shows users every option
    model: Any,
    inputs: Any,
    method: Any = None,
    target: TargetLike | Sequence[TargetLike] = None,
    *,
    batch_size: int | None = None,
    precision: str | None = None,
    overflow: str | None = None,
    long: str | None = None,
    answer: str | Sequence[str] | None = None,
    versus: str | Sequence[str] | None = None,
    focus: Focus = None,
    matrix: bool = False,
    scale: str | None = None,
    generation: Mapping[str, Any] | None = None,
    sources: Any = None,
    check: bool | int | None = None,
    **options: Any,
) -> Any:
    """Explain one input with an Explanation, or a list or a batch of tensors with a list of them.

    The list may be a generator, a column of pandas, polars, pyarrow or `datasets`, or a table with a text column.
    `method` is "balanced-cat" by default, for the answers of language models "attn-lrp", unless `clearhead.choose` has
    chosen another for this model; "default" is the library's default again.
    `target` is None (the prediction), a class index, a label, a Target, or a list with one per input. Further keyword
    arguments are the method's options. `precision="float64"` computes in a float64 copy of the model; `overflow` says
    what to do with texts longer than the model takes: "error" (the default), "truncate" or "windows".

    For a language model the inputs are prompts: texts, or lists of chat messages; for a model that reads pictures also
    pairs of a picture, or a list of them, and a text or chat, or the tensors of its processor. `answer` is what to
    explain; None lets the model write one, with the options in `generation`. `versus` is another answer to compare
    with, `focus` a part of the answer (words, the index of a step, or a pair of characters), `matrix=True` explains
    every step as well, and `scale` is "log-prob" (the default) or "logit". `sources` are documents (put into the prompt
    at {sources}, or before it), segments of the prompt as texts or (start, end), "sentences" or "turns"; a mapping
    names them.

    `check` hides the strongest words or patches, and shows them alone, to see whether they matter more than the
    others: `Explanation.check`. None checks up to 64 texts or 4 images of a call; a number is that of the groups that
    words or patches are divided into, five or more.

    >>> clearhead.explain(clearhead.load(), "a joyless, tedious film", "att-cat").top(2)     # doctest: +SKIP
    """
    if method is None or method == DEFAULT:
        model = as_model(model)
        method = resolve_method(model, method, **options)
    spec = parse_method(method, **options)
    comparison = compare(
        model,
        inputs,
        [spec],
        target,
        batch_size=batch_size,
        precision=precision,
        overflow=overflow,
        long=long,
        answer=answer,
        versus=versus,
        focus=focus,
        matrix=matrix,
        scale=scale,
        generation=generation,
        sources=sources,
        check=check,
    )
    return comparison[spec.text]


def compare(  # noqa: PLR0913 - as for `explain`
    model: Any,
    inputs: Any,
    methods: Iterable[Any] | None = None,
    target: TargetLike | Sequence[TargetLike] = None,
    *,
    batch_size: int | None = None,
    precision: str | None = None,
    overflow: str | None = None,
    long: str | None = None,
    answer: str | Sequence[str] | None = None,
    versus: str | Sequence[str] | None = None,
    focus: Focus = None,
    matrix: bool = False,
    scale: str | None = None,
    generation: Mapping[str, Any] | None = None,
    sources: Any = None,
    check: bool | int | None = None,
) -> dict[str, Any]:
    """Explain inputs by several methods from one trace: {method as written: Explanation, or list of them}.

    The options are those of `explain`.
    """
    inputs = as_plain_inputs(inputs)
    target = as_plain_list(target)
    model = as_model(model)
    # Names and options first: a mistake in them must not cost the time of encoding many inputs.
    specs = _parse_methods(model, methods)
    model = with_precision(model, precision)
    validate_request(specs, batch_size)
    overflow = _resolve_overflow(overflow, long)
    answers = AnswerOptions(answer, versus, focus, matrix, scale, generation or {}, sources)
    validate_check(check)
    listed = _list_inputs(model, inputs)

    def explain_by(planned: Sequence[MethodSpec]) -> ByMethod:
        if model.writes:
            return _explain_prompts(model, listed, planned, target, answers, batch_size)
        _refuse_answer_options(model, answers)
        return _explain_inputs(model, listed, planned, target, batch_size, overflow)

    def explain_rows(planned: Sequence[MethodSpec]) -> Explained:
        by_method, batches = explain_by(planned)
        return _transpose(by_method), batches

    groups = count_groups(check, model, len(listed))
    if groups:
        rows, batches = explain_with_error_bars(model, specs, explain_rows, precision=precision)
        by_method: Sequence[Sequence[Explanation]] = _transpose(check_batches(model, rows, batches, groups))
    else:
        by_method, _ = explain_by(specs)
    return _name_methods(specs, by_method, is_single=_is_single(model, inputs))


def _is_single(model: Model, inputs: Any) -> bool:
    """Return whether this is one input: for a language model also a chat, or a prompt with its pictures."""
    return is_single(inputs) or (model.writes and (is_chat(inputs) or has_pictures(inputs)))


def _transpose(rows: Sequence[Sequence[Explanation]]) -> list[list[Explanation]]:
    """Turn a list per input into a list per method, or back."""
    return list(map(list, zip(*rows, strict=True)))


def _list_inputs(model: Model, inputs: Any) -> Inputs | list[Any]:
    """Return the inputs of a call as a list, or as a batch of tensors; one prompt may be a list of chat messages."""
    if model.writes and _is_single(model, inputs):
        return [inputs]
    if isinstance(inputs, Mapping) and not model.writes:
        return from_tensors(model, inputs)
    if isinstance(inputs, Inputs):
        return inputs
    return as_input_list(inputs)


def _name_methods(
    specs: Sequence[MethodSpec], by_method: Sequence[Sequence[Explanation]], *, is_single: bool
) -> Comparison:
    comparison = Comparison()
    for spec, explanations in zip(specs, by_method, strict=True):
        comparison[spec.text] = explanations[0] if is_single else Explanations.read_from(explanations)
    return comparison


def _explain_prompts(
    model: Model,
    prompts: Any,
    specs: Sequence[MethodSpec],
    target: Any,
    options: AnswerOptions,
    batch_size: int | None,
) -> ByMethod:
    if target is not None:
        raise BadOption(
            f"{model.name} writes text and has no classes: leave out target, and give answer, versus, focus."
        )
    encoded, targets = encode_answers(model, prompts, options)
    request = AttributionRequest(model, specs, targets)
    rows = explain_answers(request, encoded, batch_size, matrix=options.matrix)
    return _transpose(rows), make_batches(model, EncodedList(list(encoded.values())), batch_size)


def _refuse_answer_options(model: Model, options: AnswerOptions) -> None:
    if not options.is_default:
        raise BadOption(
            f"{model.name} is no language model: answer, versus, focus, matrix, scale, generation and sources need "
            "one that writes (…ForCausalLM). For two classes use Target(a, versus=b)."
        )


def _parse_methods(model: Model, methods: Iterable[Any] | None) -> list[MethodSpec]:
    if methods is None:
        return [resolve_method(model, None)]
    return [resolve_method(model, name) for name in as_list(methods)]


def _resolve_overflow(overflow: str | None, long: str | None) -> str:
    """Return the valid value of `overflow`, which may be given under its former name `long`."""
    if overflow is not None and long is not None:
        raise BadOption("'overflow' and 'long' are two names of one option: give only 'overflow'.")
    value = overflow if long is None else long
    if value is None:
        return "error"
    validate_overflow(value)
    return value


def _explain_inputs(
    model: Model,
    inputs: Any,
    specs: Sequence[MethodSpec],
    target: Any,
    batch_size: int | None,
    overflow: str,
) -> ByMethod:
    """Return for each method the explanations of all inputs, in order, and the batches of inputs."""
    if isinstance(inputs, Inputs):
        return _explain_tensors(model, inputs, specs, target, batch_size)
    return _explain_raw(model, inputs, specs, target, batch_size, overflow)


def _explain_tensors(
    model: Model, inputs: Inputs, specs: Sequence[MethodSpec], target: Any, batch_size: int | None
) -> ByMethod:
    request = AttributionRequest(model, specs, list_targets(target, len(inputs)))
    results = CollectedResults(len(inputs))
    results.add_all(explain_batches(request, split_inputs(model, inputs, batch_size)))
    return results.by_method(len(specs)), split_inputs(model, inputs, batch_size)


def _explain_raw(
    model: Model,
    inputs: Sequence[Any],
    specs: Sequence[MethodSpec],
    target: Any,
    batch_size: int | None,
    overflow: str,
) -> ByMethod:
    request = AttributionRequest(model, specs, list_targets(target, len(inputs)))
    results = CollectedResults(len(inputs))
    chunks = prefetch(encode_chunks(model, inputs, overflow=overflow), model.device, "encoding")
    long: dict[int, Encoded] = {}
    results.add_all(explain_batches(request, _make_batches(model, chunks, batch_size, long)))
    for index, row in long.items():
        results.add(_explain_long(request, index, row, batch_size))
    # For checks, which few ask for: encoded again.
    again = _make_batches(model, encode_chunks(model, inputs, overflow=overflow), batch_size, {})
    return results.by_method(len(specs)), again


def _make_batches(
    model: Model, chunks: Iterator[tuple[int, EncodedRows]], batch_size: int | None, long: dict[int, Encoded]
) -> Iterator[Batch]:
    """Yield the batches of all chunks; add the inputs that are too long for the model to `long`."""
    for start, encoded in chunks:
        too_long, short = _split_by_length(model, encoded)
        long.update({start + index: encoded[index] for index in too_long})
        for batch in make_batches(model, encoded, batch_size, short):
            yield Batch([start + index for index in batch.indices], batch.inputs)


def _explain_long(request: AttributionRequest, index: int, row: Encoded, batch_size: int | None) -> BatchResult:
    (target,) = request.targets_at([index])
    explanations = explain_windows(request.model, row, target, request.specs, batch_size)
    return BatchResult([index], [{TARGET: [explanation]} for explanation in explanations])


def _split_by_length(model: Model, encoded: EncodedRows) -> tuple[list[int], list[int]]:
    """Return the indices of the inputs that are too long for the model, and of the others."""
    limit = max_tokens(model)
    is_long = encoded.lengths > (sys.maxsize if limit is None else limit)
    return np.flatnonzero(is_long).tolist(), np.flatnonzero(~is_long).tolist()

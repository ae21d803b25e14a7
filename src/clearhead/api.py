"""explain() and compare(): from raw inputs to explanations."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from clearhead.answer_explanation import Focus
from clearhead.attribution.answers import AnswerOptions, encode_answers, explain_answers
from clearhead.attribution.batch import (
    AttributionRequest,
    Batch,
    attribute_batches,
    make_batches,
    single_target,
    split_inputs,
    validate_request,
)
from clearhead.attribution.method import MethodSpec, default_method, parse_method
from clearhead.attribution.windows import explain_windows, is_too_long
from clearhead.data.objects import as_plain_inputs, as_plain_list
from clearhead.errors import BadOption
from clearhead.explanation import Comparison, Explanation, Explanations
from clearhead.model.answer_inputs import is_chat
from clearhead.model.inputs import (
    Encoded,
    Inputs,
    as_input_list,
    encode,
    encode_all,
    from_tensors,
    is_single,
    validate_overflow,
)
from clearhead.model.loading import as_model
from clearhead.model.model import Model
from clearhead.model.placement import with_precision
from clearhead.model.target import TargetLike, list_targets
from clearhead.spec import as_list
from clearhead.trust.error_bars import explain_with_error_bars
from clearhead.trust.removal_check import check_batches, count_groups, validate_check

Explained = tuple[list[list[Explanation]], Iterator[Batch]]
"""The explanations of each input, and the inputs in batches, which a check goes through again."""


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
    `method` is "balanced-cat" by default, for the answers of language models "attn-lrp".
    `target` is None (the prediction), a class index, a label, a Target, or a list with one per input. Further keyword
    arguments are the method's options. `precision="float64"` computes in a float64 copy of the model; `overflow` says
    what to do with texts longer than the model takes: "error" (the default), "truncate" or "windows".

    For a language model the inputs are prompts (texts, or lists of chat messages). `answer` is what to explain; None
    lets the model write one, with the options in `generation`. `versus` is another answer to compare with, `focus` a
    part of the answer (words, the index of a step, or a pair of characters), `matrix=True` explains every step as well,
    and `scale` is "log-prob" (the default) or "logit". `sources` are documents (put into the prompt at {sources}, or
    before it), segments of the prompt as texts or (start, end), "sentences" or "turns"; a mapping names them.

    `check` hides the strongest words or patches, and shows them alone, to see whether they matter more than the
    others: `Explanation.check`. None checks up to 64 texts or 4 images of a call; a number is that of the groups that
    words or patches are divided into, five or more.

    >>> clearhead.explain(clearhead.load(), "a joyless, tedious film", "att-cat").top(2)     # doctest: +SKIP
    """
    if method is None:
        model = as_model(model)
        method = default_method(model)
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
    model = with_precision(as_model(model), precision)
    # Names and options first: a mistake in them must not cost the time of encoding many inputs.
    specs = _parse_methods([default_method(model)] if methods is None else methods)
    validate_request(specs, batch_size)
    overflow = _resolve_overflow(overflow, long)
    answers = AnswerOptions(answer, versus, focus, matrix, scale, generation or {}, sources)
    validate_check(check)
    listed = _list_inputs(model, inputs)

    def explain_by(planned: Sequence[MethodSpec]) -> Explained:
        if model.writes:
            return _explain_prompts(model, listed, planned, target, answers, batch_size)
        _refuse_answer_options(model, answers)
        return _explain_inputs(model, listed, planned, target, batch_size, overflow)

    groups = count_groups(check, model, len(listed))
    if groups:
        rows, batches = explain_with_error_bars(model, specs, explain_by, precision=precision)
        rows = check_batches(model, rows, batches, groups)
    else:
        rows, _ = explain_by(specs)
    return _group_by_method(specs, rows, is_single=is_single(inputs) or is_chat(inputs))


def _list_inputs(model: Model, inputs: Any) -> Inputs | list[Any]:
    """Return the inputs of a call as a list, or as a batch of tensors; one prompt may be a list of chat messages."""
    if model.writes and is_chat(inputs):
        return [inputs]
    if isinstance(inputs, Mapping) and not model.writes:
        return from_tensors(model, inputs)
    if isinstance(inputs, Inputs):
        return inputs
    return as_input_list(inputs)


def _group_by_method(
    specs: Sequence[MethodSpec], rows: Sequence[Sequence[Explanation]], *, is_single: bool
) -> Comparison:
    # Rows hold one explanation per method; users look them up by method.
    comparison = Comparison()
    for index, spec in enumerate(specs):
        explanations = Explanations(row[index] for row in rows)
        comparison[spec.text] = explanations[0] if is_single else explanations
    return comparison


def _explain_prompts(
    model: Model,
    prompts: Any,
    specs: Sequence[MethodSpec],
    target: Any,
    options: AnswerOptions,
    batch_size: int | None,
) -> Explained:
    if target is not None:
        raise BadOption(
            f"{model.name} writes text and has no classes: leave out target, and give answer, versus, focus."
        )
    encoded, targets = encode_answers(model, prompts, options)
    request = AttributionRequest(model, specs, targets)
    rows = explain_answers(request, encoded, batch_size, matrix=options.matrix)
    return rows, make_batches(model, encoded, batch_size)


def _refuse_answer_options(model: Model, options: AnswerOptions) -> None:
    if not options.is_default:
        raise BadOption(
            f"{model.name} is no language model: answer, versus, focus, matrix, scale, generation and sources need "
            "one that writes (…ForCausalLM). For two classes use Target(a, versus=b)."
        )


def _parse_methods(methods: Iterable[Any]) -> list[MethodSpec]:
    return [parse_method(name) for name in as_list(methods)]


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
) -> Explained:
    """Return for each input, in order, its explanations by each method, and the batches of inputs."""
    if isinstance(inputs, Inputs):
        return _explain_tensors(model, inputs, specs, target, batch_size)
    return _explain_raw(model, inputs, specs, target, batch_size, overflow)


def _explain_tensors(
    model: Model, inputs: Inputs, specs: Sequence[MethodSpec], target: Any, batch_size: int | None
) -> Explained:
    request = AttributionRequest(model, specs, list_targets(target, len(inputs)))
    results = attribute_batches(request, split_inputs(model, inputs, batch_size))
    return [single_target(result) for _, result in results], split_inputs(model, inputs, batch_size)


def _explain_raw(
    model: Model,
    inputs: Sequence[Any],
    specs: Sequence[MethodSpec],
    target: Any,
    batch_size: int | None,
    overflow: str,
) -> Explained:
    encoded = encode_all(model, partial(encode, model, overflow=overflow), inputs)
    request = AttributionRequest(model, specs, list_targets(target, len(encoded)))
    long, short = _split_by_length(model, encoded)
    rows = {
        **_explain_long(request, long, batch_size),
        **_explain_short(request, short, batch_size),
    }
    # Batches come by length: back into the order of the inputs.
    return [rows[index] for index in range(len(encoded))], make_batches(model, short, batch_size)


def _explain_long(
    request: AttributionRequest, encoded: Mapping[int, Encoded], batch_size: int | None
) -> dict[int, list[Explanation]]:
    targets = request.targets_at(list(encoded))
    explained = {}
    for (index, row), target in zip(encoded.items(), targets, strict=True):
        explained[index] = explain_windows(request.model, row, target, request.specs, batch_size)
    return explained


def _explain_short(
    request: AttributionRequest, encoded: Mapping[int, Encoded], batch_size: int | None
) -> dict[int, list[Explanation]]:
    batches = make_batches(request.model, encoded, batch_size)
    return {index: single_target(result) for index, result in attribute_batches(request, batches)}


def _split_by_length(model: Model, encoded: Sequence[Encoded]) -> tuple[dict[int, Encoded], dict[int, Encoded]]:
    """Return the inputs that are too long for the model, and the others, by their index."""
    long = {}
    short = {}
    for index, row in enumerate(encoded):
        if is_too_long(model, row):
            long[index] = row
        else:
            short[index] = row
    return long, short

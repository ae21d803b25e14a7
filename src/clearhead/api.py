"""explain() and compare(): from raw inputs to explanations."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from clearhead.answer_explanation import Focus
from clearhead.attribution.answers import AnswerOptions, encode_answers, explain_answers
from clearhead.attribution.batch import AttributionRequest, validate_request
from clearhead.attribution.batch_sizes import Batch, make_batches
from clearhead.attribution.explain_inputs import ByMethod, explain_inputs
from clearhead.attribution.method import MethodSpec, parse_method, resolve_method
from clearhead.attribution.multiple_choice import combine_rows, has_choices, is_choice_input, parse_choices
from clearhead.attribution.names import DEFAULT
from clearhead.data.objects import as_plain_inputs, as_plain_list, is_frame
from clearhead.errors import BadOption
from clearhead.explanation import Comparison, Explanation, Explanations, ModelComparison
from clearhead.joined import join_explanations
from clearhead.model.chats import is_chat
from clearhead.model.focused_inputs import attach_focus
from clearhead.model.inputs import (
    EncodedList,
    Inputs,
    as_input_list,
    from_tensors,
    is_single,
    join_words,
    validate_overflow,
)
from clearhead.model.joined_inputs import encode_joined, is_joined_pair
from clearhead.model.loading import as_model
from clearhead.model.model import Model
from clearhead.model.picture_prompts import has_pictures
from clearhead.model.placement import with_precision
from clearhead.model.target import TargetLike, contrast_targets
from clearhead.spec import as_list
from clearhead.towers import compare_pairs
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
    answer: str | Sequence[str] | Sequence[int] | None = None,
    versus: Any = None,
    focus: Focus = None,
    matrix: bool = False,
    scale: str | None = None,
    generation: Mapping[str, Any] | None = None,
    sources: Any = None,
    check: bool | int | None = None,
    is_split_into_words: bool = False,
    **options: Any,
) -> Any:
    """Explain one input with an Explanation, or a list or a batch of tensors with a list of them.

    The list may be a generator, a column of pandas, polars, pyarrow or `datasets`, or a table with a text column, whose
    explanations keep id, gold label and other columns as `source`, and whose column "column:NAME" may be `target`.
    `method` is "balanced-cat" by default, for the answers of language models "attn-lrp", unless `clearhead.choose` has
    chosen another for this model; "default" is the library's default again.
    `target` is None (the prediction), a class index, a label, a Target, or a list with one per input; `versus` is a
    class, or a list of them, that it is contrasted with. With `is_split_into_words` an input is a list of words, which
    are joined by blanks. Further keyword arguments are the method's options. `precision="float64"` computes in a
    float64 copy of the model; `overflow` says what to do with texts longer than the model takes: "error" (the default),
    "truncate" or "windows".

    For a language model the inputs are prompts: texts, or lists of chat messages; for a model that reads pictures also
    pairs of a picture, or a list of them, and a text or chat, or the tensors of its processor. `answer` is what to
    explain, a text or, for a single prompt, a list of token ids; None lets the model write one, with the options in
    `generation`. `versus` is another answer to compare with, `focus` a part of the answer (words, the index of a step,
    or a pair of characters), `matrix=True` explains every step as well, and `scale` is "log-prob" (the default) or
    "logit". `sources` are documents (put into the prompt at {sources}, or before it), segments of the prompt as texts
    or (start, end), "sentences" or "turns"; a mapping names them.

    A model that labels words, fills in masked words, finds boxes or labels pixels has many outputs: `focus` is the one
    to explain, or a list with one per input (docs/heads.md). A multiple choice is (context, [choice, choice, …]).

    For a two-tower model (CLIP, SigLIP, `clearhead.similarity`) an input is (picture, text) or (text, text), or has a
    list of texts in the second place, which are the classes; the result is a JointExplanation. `matrix=True` adds the
    relevance of pairs of tokens.

    A model that reads a picture and a text as one sequence (ViLT, VisualBERT) takes (picture, text), with the features
    of regions instead of the picture (regions, text), or its tensors; the result is a JointExplanation as well.

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
        is_split_into_words=is_split_into_words,
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
    answer: str | Sequence[str] | Sequence[int] | None = None,
    versus: Any = None,
    focus: Focus = None,
    matrix: bool = False,
    scale: str | None = None,
    generation: Mapping[str, Any] | None = None,
    sources: Any = None,
    check: bool | int | None = None,
    is_split_into_words: bool = False,
) -> dict[str, Any]:
    """Explain inputs by several methods from one trace: {method as written: Explanation, or list of them}.

    The options are those of `explain`. `model` may be a list of models, or a mapping that names them: then the same
    inputs are explained in each, by the default method or by `methods`, and the result is {model: {method: …}}, with
    the rank correlation between models as `model_agreement` in the diagnostics.
    """
    settings: dict[str, Any] = {"batch_size": batch_size, "precision": precision, "overflow": overflow, "long": long}
    settings |= {"answer": answer, "versus": versus, "focus": focus, "matrix": matrix, "scale": scale}
    settings |= {"generation": generation, "sources": sources, "check": check}
    if isinstance(model, list | tuple | Mapping):
        compare_one = partial(compare, is_split_into_words=is_split_into_words, **settings)
        return _compare_models(model, inputs, methods, target, compare_one)
    model = as_model(model)
    if is_frame(inputs) and not is_split_into_words and _reads_rows(model):
        return _compare_frame(model, inputs, methods, target, settings)
    inputs = _read_inputs(inputs, is_split_into_words)
    target, versus = _contrast_classes(model, as_plain_list(target), as_plain_list(versus))
    answers = AnswerOptions(answer, versus, focus, matrix, scale, generation or {}, sources)
    if model.chooses and has_choices(inputs):
        common = {"batch_size": batch_size, "precision": precision, "overflow": overflow, "long": long, "check": check}
        return _compare_choices(model, inputs, methods, target, answers, common)
    # Names and options first: a mistake in them must not cost the time of encoding many inputs.
    specs = _parse_methods(model, methods)
    model = with_precision(model, precision)
    validate_request(specs, batch_size)
    validate_check(check)
    overflow = _resolve_overflow(overflow, long)
    if model.reads_pairs:
        _refuse_answer_options(model, replace(answers, matrix=False))
        compare_side = partial(compare, batch_size=batch_size, check=check)
        return compare_pairs(model, inputs, specs, target, compare_side, overflow=overflow, matrix=matrix)
    listed_settings = _Settings(specs, target, answers, batch_size, precision, overflow, check)
    if model.reads_jointly:
        return _compare_joined(model, inputs, listed_settings)
    by_method = _explain_by_methods(model, _list_inputs(model, inputs, answers), listed_settings)
    return _name_methods(specs, by_method, is_single=_is_single(model, inputs))


def _compare_models(
    models: Any, inputs: Any, methods: Any, target: Any, compare_one: Callable[..., Any]
) -> ModelComparison:
    # Imported here because it reads the explanations that this module makes.
    from clearhead.drift.side_by_side import compare_models

    return compare_models(models, inputs, methods, target, compare_one)


def _reads_rows(model: Model) -> bool:
    """Return whether a row of a table is an input by itself."""
    return not (model.reads_pairs or model.reads_jointly or model.chooses)


def _compare_frame(model: Model, frame: Any, methods: Any, target: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    # Imported here because tables are explained by this module.
    from clearhead.tables.frames import compare_frame

    return compare_frame(model, frame, target, settings, partial(compare, model, methods=methods))


@dataclass(frozen=True)
class _Settings:
    """How the listed inputs of a call are explained."""

    specs: Sequence[MethodSpec]
    target: Any
    answers: AnswerOptions
    batch_size: int | None
    precision: str | None
    overflow: str
    check: bool | int | None


def _explain_by_methods(
    model: Model, listed: Inputs | list[Any], settings: _Settings
) -> Sequence[Sequence[Explanation]]:
    """Explain listed inputs by every method, with error bars and checks where they are wanted."""

    def explain_by(planned: Sequence[MethodSpec]) -> ByMethod:
        if model.writes:
            return _explain_prompts(model, listed, planned, settings.target, settings.answers, settings.batch_size)
        return explain_inputs(model, listed, planned, settings.target, settings.batch_size, settings.overflow)

    def explain_rows(planned: Sequence[MethodSpec]) -> Explained:
        by_method, batches = explain_by(planned)
        return _transpose(by_method), batches

    groups = count_groups(settings.check, model, len(listed))
    if not groups:
        return explain_by(settings.specs)[0]
    rows, batches = explain_with_error_bars(model, settings.specs, explain_rows, precision=settings.precision)
    return _transpose(check_batches(model, rows, batches, groups))


def _compare_joined(model: Model, inputs: Any, settings: _Settings) -> Comparison:
    """Explain pictures with their texts, which the model reads as one sequence."""
    _refuse_answer_options(model, settings.answers)
    batch = encode_joined(model, inputs, settings.overflow)
    by_method = _explain_by_methods(model, batch, settings)
    joined: list[Any] = [join_explanations(explanations, batch.items) for explanations in by_method]
    return _name_methods(settings.specs, joined, is_single=is_joined_pair(inputs))


def _compare_choices(
    model: Model,
    inputs: Any,
    methods: Iterable[Any] | None,
    target: Any,
    answers: AnswerOptions,
    settings: Mapping[str, Any],
) -> Comparison:
    """Explain contexts with their choices, from the explanations of all pairs."""
    _refuse_answer_options(model, answers)
    examples = parse_choices(inputs)
    pairs = list(chain.from_iterable(example.pairs for example in examples))
    comparison = Comparison()
    for name, explanations in compare(model, pairs, methods, **settings).items():
        combined = combine_rows(examples, explanations, target)
        comparison[name] = combined[0] if is_choice_input(inputs) else Explanations(combined)
    return comparison


def _read_inputs(inputs: Any, is_split_into_words: bool) -> Any:
    """Return inputs of other libraries as lists, and words as texts."""
    inputs = as_plain_inputs(inputs)
    return join_words(inputs) if is_split_into_words else inputs


def _contrast_classes(model: Model, target: Any, versus: Any) -> tuple[Any, Any]:
    """Return targets, of classes in contrast to others, and the other answer of a language model."""
    if versus is None or model.writes:
        return target, versus
    return contrast_targets(target, versus), None


def _is_single(model: Model, inputs: Any) -> bool:
    """Return whether this is one input: for a language model also a chat, or a prompt with its pictures."""
    return is_single(inputs) or is_chat(inputs) or (model.writes and has_pictures(inputs))


def _transpose(rows: Sequence[Sequence[Explanation]]) -> list[list[Explanation]]:
    """Turn a list per input into a list per method, or back."""
    return list(map(list, zip(*rows, strict=True)))


def _list_inputs(model: Model, inputs: Any, answers: AnswerOptions) -> Inputs | list[Any]:
    """Return the inputs of a call as a list, or as a batch of tensors; one prompt may be a list of chat messages.

    Those of a model with several outputs have the part of them that is explained.
    """
    if model.writes:
        return _list_prompts(inputs)
    _refuse_answer_options(model, replace(answers, focus=None))
    if isinstance(inputs, Mapping):
        return from_tensors(model, inputs, answers.focus)
    if isinstance(inputs, Inputs):
        return attach_focus(model, inputs, answers.focus)
    return attach_focus(model, as_input_list(inputs), answers.focus)


def _list_prompts(inputs: Any) -> Inputs | list[Any]:
    if is_chat(inputs) or has_pictures(inputs):
        return [inputs]
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
            f"{model.name} is no language model: answer, focus, matrix, scale, generation and sources need one that "
            "writes (…ForCausalLM)."
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

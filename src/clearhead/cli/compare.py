"""clearhead compare."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from clearhead.cli import model_rows, options, outputs, towers
from clearhead.cli.answers import AnswerFlags
from clearhead.cli.cards import removal_card
from clearhead.cli.chunks import compare_in_chunks, resolve_check
from clearhead.cli.explain import choose_foil, read_inputs, refuse_class_flags
from clearhead.cli.inputs import InputReader, check_inputs, check_text_column
from clearhead.cli.tables import select_inputs
from clearhead.errors import BadOption

if TYPE_CHECKING:
    from pathlib import Path

    from clearhead.attribution.method import MethodSpec
    from clearhead.explanation import Explanation
    from clearhead.model.model import Model

CLASS_METHODS = ("attn-lrp", "trans-att", "integrated-gradients")
ANSWER_METHODS = ("gradient-x-input",)


def compare(
    inputs: options.Inputs,
    methods: options.Methods = None,
    model: options.ModelNames = None,
    target: options.Target = None,
    versus: options.Versus = None,
    answer: options.Answer = None,
    focus: options.Focus = None,
    out: options.Out = None,
    json: options.Json = False,
    text_column: options.TextColumn = None,
    pair: options.Pair = False,
    as_text: options.AsText = False,
    curves: options.Curves = False,
    overflow: options.Overflow = "error",
    long: options.Long = None,
    precision: options.Precision = None,
    check: options.Check = None,
    no_check: options.NoCheck = False,
    device: options.Device = None,
    allow_pickle: options.AllowPickle = False,
    lm_head: options.LmHead = None,
) -> None:
    """Compare methods on texts or images, all computed from the same forward pass; or models, by the same method.

    Examples:

    clearhead compare "a joyless , tedious film" --methods balanced-cat,lime

    clearhead compare "a joyless , tedious film" -m old/ -m new/ --out models.html
    """
    outputs.check_path(out, page_options={"--curves": curves}, inputs=inputs)
    check_text_column(inputs, text_column)
    names: Sequence[str | None] = model or [None]
    # Before models are loaded, which may take long.
    model_rows.refuse_repeated(names)
    chosen_check = options.choose_check(check, no_check)
    options.check_methods(methods)
    check_inputs(inputs, text_column, as_text=as_text)
    models = [options.load_model(name, device, lm_head, allow_pickle=allow_pickle) for name in names]
    model_rows.require_comparable(models, target)
    loaded = models[0]
    specs = _resolve_methods(models, methods)
    refuse_class_flags(loaded, None, {"--target": target, "--curves": curves, "--pair": pair})
    reader = InputReader(loaded.takes_images, text_column, pair, as_text=as_text)
    raw_inputs = _read_inputs(loaded, reader, inputs, {"--curves": curves, "--pair": pair, "--focus": focus})
    _check_image(loaded, out)
    outputs.check_count(out, len(raw_inputs), len(specs) * len(models))
    settings: dict[str, Any] = {"precision": precision, "overflow": options.choose_overflow(overflow, long)}
    settings["check"] = resolve_check(chosen_check, loaded, len(raw_inputs))
    settings.update(AnswerFlags(answer, choose_foil(loaded, versus), focus).settings)
    # Of all models first: one may not have the class.
    targets = [_parse_target(entry, target, versus) for entry in models]
    by_model = {}
    for entry, chosen in zip(models, targets, strict=True):
        by_model[entry.name] = list(compare_in_chunks(entry, raw_inputs, specs, chosen, settings))
    deliver = model_rows.deliver if len(models) > 1 else _deliver
    deliver(models, raw_inputs, by_model, out=out, json=json, curves=curves)


def _deliver(
    models: "Sequence[Model]",
    inputs: Sequence[Any],
    by_model: "Mapping[str, Sequence[Mapping[str, Explanation]]]",
    *,
    out: "Path | None",
    json: bool,
    curves: bool,
) -> None:
    """Write and print what several methods make of the same inputs in the only model."""
    rows = by_model[models[0].name]
    outputs.deliver(
        _name_explanations(rows),
        out=out,
        json=json,
        render_page=partial(_render_bodies, models[0], inputs, rows, curves=curves),
        show=partial(outputs.show_comparisons, rows, everything=out is None),
    )


def _resolve_methods(models: "Sequence[Model]", flags: Sequence[str] | None) -> "list[MethodSpec]":
    """Return the methods that were named; else several for one model, and for several models the one they share."""
    from clearhead.drift import side_by_side

    if flags:
        return options.resolve_methods(models[0], flags)
    if len(models) > 1:
        return side_by_side.resolve_methods(models, None)
    return options.resolve_methods(models[0], list(_default_methods(models[0])))


def _read_inputs(
    model: "Model", reader: InputReader, arguments: Sequence[str], flags: Mapping[str, Any]
) -> Sequence[Any]:
    """Return the inputs; a picture and the texts that it is compared with, or a context and its choices, are one."""
    if not _reads_two(model):
        return select_inputs(read_inputs(model, reader, arguments, flags))
    towers.refuse_flags(model, flags)
    picture, texts = towers.read_pair(model, arguments)
    if model.reads_pairs:
        return [(picture, texts)]
    # Each text is an input of its own, whose classes are those of the model.
    return [(picture, text) for text in texts]


def _reads_two(model: "Model") -> bool:
    return model.reads_pairs or model.reads_jointly


def _check_image(model: "Model", out: "Path | None") -> None:
    # An image has place for one picture beside its words.
    if _reads_two(model) and out is not None and outputs.is_image(out):
        raise BadOption(
            f"{out.suffix} shows one method for two inputs: use .html, .pdf (a page for each), or clearhead explain."
        )


def _parse_target(model: "Model", target: str | None, versus: str | None) -> Any:
    if model.writes:
        return target
    if _reads_two(model):
        return towers.make_target(target, versus)
    return options.parse_target(model, target, versus)


def _default_methods(model: "Model") -> tuple[str, ...]:
    """Return methods to compare if none are named: the model's own, and others that take little time."""
    from clearhead.attribution.method import default_method

    others = ANSWER_METHODS if model.writes else CLASS_METHODS
    return tuple(dict.fromkeys([default_method(model), *others]))


def _name_explanations(rows: "Sequence[Mapping[str, Explanation]]") -> "list[tuple[str, Explanation]]":
    """Return all explanations with their methods, input by input."""
    return list(chain.from_iterable(row.items() for row in rows))


def _render_bodies(
    model: "Model", inputs: Sequence[Any], rows: "Sequence[Mapping[str, Explanation]]", *, curves: bool
) -> list[str]:
    from clearhead.views import html

    bodies = html.summarise_rows(rows)
    for raw, row in zip(inputs, rows, strict=True):
        bodies.append(html.methods(row))
        # Only on demand: curves take many more passes through the model.
        if curves:
            bodies.append(removal_card(model, raw, row))
    return bodies

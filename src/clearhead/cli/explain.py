"""clearhead explain."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.cli import answers, options, outputs, towers
from clearhead.cli.answers import list_files
from clearhead.cli.cards import class_words_cards, removal_card
from clearhead.cli.chunks import explain_in_chunks, resolve_check
from clearhead.cli.inputs import InputReader, check_inputs, check_text_column, gather_choices
from clearhead.cli.tables import (
    TableFlags,
    announce_errors,
    are_tables,
    choose_device,
    choose_errors,
    explain_rows,
    explain_stream,
    is_streamed,
    make_runner,
    names_column,
    read_sources,
    require_tables,
    select_explained,
)
from clearhead.errors import BadInput, BadOption

if TYPE_CHECKING:
    from clearhead.attribution.method import MethodSpec
    from clearhead.explanation import Explanation
    from clearhead.model.model import Model


def explain(
    inputs: options.Inputs,
    model: options.ModelName = None,
    method: options.Method = None,
    target: options.Target = None,
    versus: options.Versus = None,
    answer: options.Answer = None,
    focus: options.Focus = None,
    matrix: options.Matrix = False,
    scale: options.Scale = None,
    max_new_tokens: options.MaxNewTokens = None,
    sources: options.Sources = None,
    image: options.Pictures = None,
    out: options.TableOut = None,
    json: options.Json = False,
    method_options: options.MethodOptions = None,
    text_column: options.TextColumn = None,
    pair: options.Pair = False,
    as_text: options.AsText = False,
    curves: options.Curves = False,
    gold: options.Gold = None,
    overflow: options.Overflow = "error",
    long: options.Long = None,
    precision: options.Precision = None,
    check: options.Check = None,
    no_check: options.NoCheck = False,
    batch_size: options.BatchSize = None,
    device: options.Device = None,
    allow_pickle: options.AllowPickle = False,
    lm_head: options.LmHead = None,
    image_column: options.ImageColumn = None,
    label_column: options.LabelColumn = None,
    id_column: options.IdColumn = None,
    columns: options.Columns = None,
    flat: options.Flat = False,
    tokens: options.Tokens = False,
    shard: options.ShardRows = None,
    ray: options.Ray = None,
    workers: options.Workers = None,
) -> None:
    """Explain texts or images: which words or patches made the model decide.

    For a language model the inputs are prompts, and its answer is explained.

    Examples:

    clearhead explain "a joyless , tedious film" --out review.html

    clearhead explain photo.jpg --model clearhead/pets-vit --target Bengal

    clearhead explain photo.jpg "a photo of a cat" "a photo of a dog" --model my-clip

    clearhead explain prompt.txt --model M --answer Paris --versus London

    clearhead explain "Obama was born in Hawaii" --model NER --focus Hawaii

    clearhead explain "It rained, so" "she took an umbrella" "she took a nap" --model CHOICES --versus others

    clearhead explain reviews.parquet --versus column:label --out explained.parquet

    clearhead explain reviews.parquet --out explained.parquet --ray local --workers 4
    """
    table = TableFlags(text_column, image_column, label_column, id_column, columns, flat, tokens, shard, ray, workers)
    streamed = _check_flags(
        inputs, list_files(image, sources), out, table, {"--curves": curves, "--gold": bool(gold)}, as_text=as_text
    )
    # Before the model is loaded, which may take long.
    chosen_check = options.choose_check(check, no_check)
    options.check_method(method, method_options)
    loaded = options.load_model(model, choose_device(table, device), lm_head, allow_pickle=allow_pickle)
    spec = options.resolve_method(loaded, method, method_options)
    settings = _make_settings(
        precision,
        batch_size,
        options.choose_overflow(overflow, long),
        answers.AnswerFlags(answer, choose_foil(loaded, versus), focus, matrix, scale, max_new_tokens, sources),
    )
    refuse_class_flags(loaded, image, {"--target": target, "--curves": curves, "--gold": gold, "--pair": pair})
    if streamed and out is not None:
        targets = _stream_targets(loaded, target, versus, json=json)
        settings |= {**targets, "check": chosen_check, "runner": make_runner(table, device)}
        explain_stream(loaded, inputs, out, spec, table, settings)
        return
    if loaded.reads_pairs or loaded.reads_jointly:
        towers.explain_and_deliver(
            loaded, inputs, spec, {**settings, "check": chosen_check}, (target, versus), out=out, json=json
        )
        return
    reader = InputReader(loaded.takes_images, table.input_column, pair, gold or (), as_text)
    raw_inputs = read_inputs(
        loaded, reader, inputs, {"--curves": curves, "--gold": gold, "--pair": pair, "--focus": focus}
    )
    annotations = _read_annotations(reader, inputs, raw_inputs)
    outputs.check_count(out, len(raw_inputs))
    settings["check"] = resolve_check(chosen_check, loaded, len(raw_inputs))
    if loaded.writes:
        answers.Questions(inputs, raw_inputs, table, answers.PromptMaker(images=image)).explain_and_deliver(
            loaded, spec, settings, out=out, json=json
        )
        return
    results = _explain_classes(
        loaded,
        inputs,
        raw_inputs,
        spec,
        table,
        settings,
        target,
        versus,
        pair=pair or loaded.chooses,
        as_text=as_text,
    )
    # What a page shows beside the explanations is not checked.
    page = _Page(loaded, spec, {**settings, "check": False}, curves=curves, annotated=bool(gold))
    _deliver(page, results, raw_inputs, annotations, out=out, json=json)


def _deliver(
    page: "_Page",
    results: "Sequence[Explanation | BadInput]",
    raw_inputs: Sequence[Any],
    annotations: Sequence[Any],
    *,
    out: Path | None,
    json: bool,
) -> None:
    """Write and print the explanations, and why some inputs have none."""
    numbers = select_explained(results)
    explanations, inputs, marks = (_pick(values, numbers) for values in (results, raw_inputs, annotations))
    errors = [result for result in results if isinstance(result, BadInput)]
    announce_errors(errors)
    outputs.deliver(
        [(page.spec.text, explanation) for explanation in explanations],
        out=out,
        json=json,
        render_page=partial(replace(page, errors=errors).render, inputs, explanations, marks),
        show=partial(outputs.show_explanations, explanations, everything=out is None),
    )


def _check_flags(
    inputs: Sequence[str],
    files: Sequence[Path],
    out: Path | None,
    table: TableFlags,
    page_options: Mapping[str, bool],
    *,
    as_text: bool,
) -> bool:
    """Raise an error for flags that do not fit each other, and return whether tables are explained as a stream."""
    streamed = is_streamed(inputs, out)
    if not streamed:
        # First: a table that does not exist is no reason to refuse what only tables have.
        check_inputs(inputs, table.input_column, as_text=as_text)
    endings = (*outputs.FILE_ENDINGS, ".csv") if are_tables(inputs) else outputs.FILE_ENDINGS
    outputs.check_path(out, page_options=page_options, endings=endings, inputs=[*inputs, *files])
    check_text_column(inputs, table.input_column, table.input_flag)
    if not streamed:
        table.refuse_stream_flags()
    return streamed


def _stream_targets(model: "Model", target: str | None, versus: str | None, *, json: bool) -> dict[str, Any]:
    """Return the targets of a table as arguments of `explain_table`."""
    if json:
        raise BadOption("--json prints explanations, but a table is written to its file only: leave out one of them.")
    if model.writes:
        return {}
    classes = {"target": options.parse_class(model, target), "versus": options.parse_class(model, versus)}
    return {name: value for name, value in classes.items() if value is not None}


def _explain_classes(
    model: "Model",
    arguments: Sequence[str],
    raw_inputs: Sequence[Any],
    spec: "MethodSpec",
    table: TableFlags,
    settings: dict[str, Any],
    target: str | None,
    versus: str | None,
    *,
    pair: bool,
    as_text: bool,
) -> "Sequence[Explanation | BadInput]":
    """Explain inputs for a class, or for the classes in a column of their table; rows without either have errors."""
    targets = _stream_targets(model, target, versus, json=False)
    if names_column(target) or names_column(versus):
        require_tables(arguments)
        return explain_rows(model, arguments, spec, table, {**settings, **targets})
    # A row that cannot be explained does not stop the others.
    if not pair and not as_text and are_tables(arguments):
        results = explain_rows(model, arguments, spec, table, {**settings, **targets})
        return choose_errors(raw_inputs, results)
    classes = options.parse_target(model, target, versus)
    readable = [raw for raw in raw_inputs if not isinstance(raw, BadInput)]
    explained = iter(list(explain_in_chunks(model, readable, spec, classes, settings)))
    sources = read_sources(model, arguments, table, settings.get("focus"), pair=pair)
    return [_add_source(raw, explained, source) for raw, source in zip(raw_inputs, sources, strict=True)]


def _add_source(raw: Any, explained: "Iterator[Explanation]", source: Mapping[str, Any]) -> "Explanation | BadInput":
    """Return the next explanation with where its input comes from, or the error of an input that could not be read."""
    if isinstance(raw, BadInput):
        return raw
    return replace(next(explained), source=source)


def _pick(values: Sequence[Any], numbers: Sequence[int]) -> list[Any]:
    return [values[number] for number in numbers]


def choose_foil(model: "Model", versus: str | None) -> str | None:
    """Return the answer of a language model that is contrasted with the explained one."""
    # For models with classes it is one of them.
    if not model.writes:
        return None
    return versus


def _make_settings(
    precision: str | None, batch_size: int | None, overflow: str, flags: answers.AnswerFlags
) -> dict[str, Any]:
    return {"precision": precision, "batch_size": batch_size, "overflow": overflow, **flags.settings}


def refuse_class_flags(model: "Model", images: Sequence[Path] | None, flags: Mapping[str, Any]) -> None:
    """Raise BadOption for flags of models with classes, and for pictures of a prompt where there is none."""
    if images and not model.writes:
        raise BadOption(f"--image is for prompts of language models that read pictures, which {model.name} is not.")
    if model.reads_pairs or model.reads_jointly:
        towers.refuse_flags(model, {flag: value for flag, value in flags.items() if flag != "--target"})
    if not model.writes:
        return
    for flag, value in flags.items():
        if value:
            raise BadOption(
                f"{flag} is for models with classes; a language model takes --answer, --versus and --focus."
            )


def read_inputs(model: "Model", reader: InputReader, arguments: Sequence[str], flags: Mapping[str, Any]) -> list[Any]:
    """Return the inputs in order; the arguments of a multiple choice together are one."""
    raw_inputs = reader.read(arguments)
    if not model.chooses:
        return raw_inputs
    for flag, value in flags.items():
        if value:
            raise BadOption(f"{flag} is not for multiple choice: give the context, then its choices, as INPUTS.")
    return [gather_choices(raw_inputs)]


def _read_annotations(reader: InputReader, arguments: Sequence[str], raw_inputs: Sequence[Any]) -> list[Any]:
    """Return per input the spans or the mask that people marked, None where they marked nothing."""
    if not reader.gold:
        return [None] * len(raw_inputs)
    pairs = zip(raw_inputs, reader.read_gold(arguments), strict=True)
    return list(starmap(_parse_annotation, pairs))


def _parse_annotation(raw: Any, marks: Sequence[Any]) -> Any:
    """Return the spans of marked phrases, or the marked mask; None without marks."""
    from clearhead.views import annotations

    if not marks or isinstance(raw, BadInput):
        return None
    # The reader returns phrases as text and masks as paths.
    if isinstance(marks[0], str):
        return annotations.find_spans(raw, marks)
    _require_one_mask(marks)
    return annotations.read_mask(marks[0], Path(raw))


def _require_one_mask(masks: Sequence[Path]) -> None:
    # Phrases may be many, but one mask marks all there is in a photo.
    if len(masks) > 1:
        raise BadOption(f"--gold takes one mask per image, but {len(masks)} were given.")


@dataclass(frozen=True)
class _Page:
    """The body of an .html file, with the passes through the model that only a page needs."""

    model: "Model"
    spec: "MethodSpec"
    settings: Mapping[str, Any]
    curves: bool
    annotated: bool
    errors: Sequence[BadInput] = ()

    def render(
        self, inputs: Sequence[Any], explanations: "Sequence[Explanation]", annotations: Sequence[Any]
    ) -> list[str]:
        """Return the cards, of many inputs one table; few also get a rollout row, two classes, curves, annotations."""
        from clearhead.tables import convert
        from clearhead.views import html
        from clearhead.views.table_page import rows_card

        bodies = html.list_errors(self.errors)
        if self._is_short(len(inputs)):
            return [*bodies, *class_words_cards(explanations), rows_card(convert.to_records(explanations))]
        bodies += html.summarise(explanations)
        rollouts = self._rollouts(inputs, explanations)
        for raw, explanation, rollout, annotation in zip(inputs, explanations, rollouts, annotations, strict=True):
            bodies.append(html.card(explanation, rollout=rollout))
            bodies += self._render_extras(raw, explanation, annotation)
        return bodies

    def _is_short(self, count: int) -> bool:
        """Return whether a page of many inputs is kept short, without the extra passes through the model."""
        from clearhead.views import html

        return count > html.MAX_FULL_CARDS and not self.curves and not self.annotated

    def _render_extras(self, raw: Any, explanation: "Explanation", annotation: Any) -> list[str]:
        classes = self._explain_classes(raw, explanation)
        bodies = _render_contrast(classes)
        if annotation is not None:
            bodies.append(_render_annotation(classes, annotation))
        if self.curves:
            bodies.append(removal_card(self.model, raw, {self.spec.text: explanation}))
        return bodies

    def _explain_classes(self, raw: Any, explanation: "Explanation") -> "list[Explanation]":
        """Explain the two classes of a contrast separately; return any other explanation as it is."""
        target = explanation.target
        # All other choices together are no class of their own.
        if not isinstance(target.versus, int):
            return [explanation]
        classes = [target.index, target.versus]
        return list(explain_in_chunks(self.model, [raw, raw], self.spec, classes, self.settings))

    def _rollouts(self, inputs: Sequence[Any], explanations: "Sequence[Explanation]") -> "Sequence[Explanation | None]":
        """Return attention rollout of the same inputs if the method has scores per block of a text, else None."""
        if self.model.chooses or not all(map(_has_text_blocks, explanations)):
            return [None] * len(inputs)
        # The same targets, so that the rows can be compared.
        targets = [explanation.target for explanation in explanations]
        return list(explain_in_chunks(self.model, inputs, "rollout", targets, self.settings))


def _has_text_blocks(explanation: "Explanation") -> bool:
    # The rollout row stands in the heat map of the blocks, which images do not have.
    return explanation.layers is not None and explanation.grid is None


def _render_contrast(classes: "Sequence[Explanation]") -> list[str]:
    from clearhead.views import html

    # One class alone has its card already.
    if len(classes) < 2:
        return []
    return [html.classes(classes)]


def _render_annotation(classes: "Sequence[Explanation]", annotation: Any) -> str:
    """Return a card with the annotation beside the explanations of one class or two."""
    from clearhead.views import annotations

    if classes[0].grid is None:
        return annotations.text_with_rationale(classes, annotation)
    return annotations.image_with_mask(classes, annotation)

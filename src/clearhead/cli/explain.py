"""clearhead explain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.cli import answers, options, outputs
from clearhead.cli.cards import class_words_cards, removal_card
from clearhead.cli.chunks import explain_in_chunks, resolve_check
from clearhead.cli.inputs import InputReader, check_text_column
from clearhead.errors import BadOption

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
    out: options.Out = None,
    json: options.Json = False,
    method_options: options.MethodOptions = None,
    text_column: options.TextColumn = None,
    pair: options.Pair = False,
    curves: options.Curves = False,
    gold: options.Gold = None,
    overflow: options.Overflow = "error",
    long: options.Long = None,
    precision: options.Precision = None,
    check: options.Check = None,
    no_check: options.NoCheck = False,
    batch_size: options.BatchSize = None,
    device: options.Device = None,
    lm_head: options.LmHead = None,
) -> None:
    """Explain texts or images: which words or patches made the model decide.

    For a language model the inputs are prompts, and its answer is explained.

    Examples:

    clearhead explain "a joyless , tedious film" --out review.html

    clearhead explain photo.jpg --model clearhead/pets-vit --target cat

    clearhead explain prompt.txt --model M --answer Paris --versus London
    """
    outputs.check_path(out, page_options={"--curves": curves, "--gold": bool(gold)})
    check_text_column(inputs, text_column)
    # Before the model is loaded, which may take long.
    chosen_check = options.choose_check(check, no_check)
    options.check_method(method, method_options)
    loaded = options.load_model(model, device, lm_head)
    spec = options.resolve_method(loaded, method, method_options)
    reader = InputReader(loaded.takes_images, text_column, pair, gold or ())
    raw_inputs = reader.read(inputs)
    annotations = _read_annotations(reader, inputs, raw_inputs)
    outputs.check_count(out, len(raw_inputs))
    chosen = options.choose_overflow(overflow, long)
    settings: dict[str, Any] = {"precision": precision, "batch_size": batch_size, "overflow": chosen}
    settings["check"] = resolve_check(chosen_check, loaded, len(raw_inputs))
    flags = answers.AnswerFlags(
        answer, versus if loaded.writes else None, focus, matrix, scale, max_new_tokens, sources
    )
    settings.update(flags.settings)
    if loaded.writes:
        _refuse_class_flags({"--target": target, "--curves": curves, "--gold": gold, "--pair": pair})
        answers.require_texts(raw_inputs)
        answers.deliver(answers.explain_answers(loaded, raw_inputs, spec, settings), spec, out=out, json=json)
        return
    targets = options.parse_target(loaded, target, versus)
    explanations = list(explain_in_chunks(loaded, raw_inputs, spec, targets, settings))
    # What a page shows beside the explanations is not checked.
    page = _Page(loaded, spec, {**settings, "check": False}, curves=curves, annotated=bool(gold))
    outputs.deliver(
        [(spec.text, explanation) for explanation in explanations],
        out=out,
        json=json,
        render_page=partial(page.render, raw_inputs, explanations, annotations),
        show=partial(outputs.show_explanations, explanations, everything=out is None),
    )


def _refuse_class_flags(flags: Mapping[str, Any]) -> None:
    for flag, value in flags.items():
        if value:
            raise BadOption(
                f"{flag} is for models with classes; a language model takes --answer, --versus and --focus."
            )


def _read_annotations(reader: InputReader, arguments: Sequence[str], raw_inputs: Sequence[Any]) -> list[Any]:
    """Return per input the spans or the mask that people marked, None where they marked nothing."""
    if not reader.gold:
        return [None] * len(raw_inputs)
    pairs = zip(raw_inputs, reader.read_gold(arguments), strict=True)
    return list(starmap(_parse_annotation, pairs))


def _parse_annotation(raw: Any, marks: Sequence[Any]) -> Any:
    """Return the spans of marked phrases, or the marked mask; None without marks."""
    from clearhead.views import annotations

    if not marks:
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

    def render(
        self, inputs: Sequence[Any], explanations: "Sequence[Explanation]", annotations: Sequence[Any]
    ) -> list[str]:
        """Return the cards; few inputs also get a rollout row, two classes side by side, curves and annotations."""
        from clearhead.views import html

        if self._is_short(len(inputs)):
            return [*class_words_cards(explanations), *html.cards(explanations)]
        bodies = html.summarise(explanations)
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
        if target.versus is None:
            return [explanation]
        classes = [target.index, target.versus]
        return list(explain_in_chunks(self.model, [raw, raw], self.spec, classes, self.settings))

    def _rollouts(self, inputs: Sequence[Any], explanations: "Sequence[Explanation]") -> "Sequence[Explanation | None]":
        """Return attention rollout of the same inputs if the method has scores per block of a text, else None."""
        if not all(map(_has_text_blocks, explanations)):
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

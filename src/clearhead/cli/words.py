"""clearhead words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli import options, outputs
from clearhead.cli.chunks import explain_in_chunks
from clearhead.cli.inputs import InputReader, check_text_column
from clearhead.cli.tables import select_inputs
from clearhead.errors import BadInput

if TYPE_CHECKING:
    from PIL import Image

    from clearhead.evaluation.top_words import ClassWord, Overlap, Weight
    from clearhead.explanation import Explanation
    from clearhead.model.model import Model

    # By class its words, the strongest first.
    WordsByClass = Mapping[str, Sequence[ClassWord]]

# Words per class in a word cloud, also when fewer are listed.
MIN_CLOUD_WORDS = 50

Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Output page, .html, with an overlap table.")]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON per class.")]
Count = Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Words per class.")]
Clouds = Annotated[bool, typer.Option("--clouds", help="Add a word cloud per class to the page.")]
Reference = Annotated[
    str | None,
    typer.Option(
        metavar="TABLE",
        help="Reference corpus: multiply each weight by the word's inverse document frequency there, "
        "ln((1 + N) / (1 + n)).",
    ),
]
MinTexts = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="Leave out words in fewer texts of the class; default: 1 to 5, by the number of texts."
    ),
]


def words(
    inputs: options.Inputs,
    model: options.ModelName = None,
    method: options.Method = None,
    target: options.Target = None,
    out: Out = None,
    json: Json = False,
    method_options: options.MethodOptions = None,
    text_column: options.TextColumn = None,
    reference: Reference = None,
    count: Count = 15,
    clouds: Clouds = False,
    min_texts: MinTexts = None,
    overflow: options.Overflow = "truncate",
    long: options.Long = None,
    batch_size: options.BatchSize = None,
    device: options.Device = None,
    allow_pickle: options.AllowPickle = False,
    lm_head: options.LmHead = None,
) -> None:
    """List the most relevant words of each class over many texts.

    A word's weight is its mean share of the relevance of a text of the class, with its 95 % interval and the number of
    texts that contain it.
    """
    _check_options(inputs, text_column, reference, out, clouds=clouds)
    # Before the model is loaded, which may take long.
    options.check_method(method, method_options)
    loaded = options.load_model(model, device, lm_head, allow_pickle=allow_pickle)
    spec = options.resolve_method(loaded, method, method_options)
    _require_text_model(loaded)
    texts = select_inputs(InputReader(images=False, text_column=text_column).read(inputs))
    weight = _read_reference(reference, text_column)
    # Words are counted, and no explanation is shown: a check of each would cost more than to explain it.
    settings = {"batch_size": batch_size, "overflow": options.choose_overflow(overflow, long), "check": False}
    targets = options.parse_target(loaded, target, None)
    explanations = list(explain_in_chunks(loaded, texts, spec, targets, settings))
    class_words = _collect_words(explanations, weight, count, min_texts)
    if out is not None:
        outputs.write_page(out, [class_words.render(clouds=clouds)], explanations)
    if json:
        class_words.print_records()
    else:
        class_words.print_lines()


def _check_options(
    inputs: Sequence[str], text_column: str | None, reference: str | None, out: Path | None, *, clouds: bool
) -> None:
    """Raise an error for options that do not fit each other, before any work is done."""
    read = [*inputs, reference or ""]
    outputs.check_path(out, page_options={"--clouds": clouds}, endings=(".html",), inputs=read)
    if clouds:
        _require_wordcloud()
    # The column is that of both tables.
    check_text_column(read, text_column)


def _require_wordcloud() -> None:
    """Raise an error if the optional library is missing, before any work is done."""
    from clearhead.views.wordcloud import import_wordcloud

    import_wordcloud()


def _require_text_model(model: "Model") -> None:
    if model.takes_images:
        raise BadInput(f"'{model.name}' reads images, which have no words. Choose a text model with --model.")


def _read_reference(reference: str | None, text_column: str | None) -> "Weight | None":
    """Return a function from a word to its inverse document frequency in the reference corpus."""
    from clearhead.evaluation.top_words import word_frequencies

    if reference is None:
        return None
    texts = select_inputs(InputReader(images=False, text_column=text_column).read([reference]))
    return word_frequencies(map(_join_pair, texts))


def _join_pair(text: str | tuple[str, str]) -> str:
    # The two texts of a row are one document.
    return text if isinstance(text, str) else " ".join(text)


@dataclass(frozen=True)
class _ClassWords:
    """The words of each class, and how far classes share them; `count` words per class are listed."""

    words: "WordsByClass"
    overlaps: "Sequence[Overlap]"
    count: int

    def render(self, *, clouds: bool) -> str:
        """Return the body of the page."""
        from clearhead.views import class_words

        images = _draw_clouds(self.words) if clouds else None
        return class_words.summary(self.words, self.overlaps, count=self.count, clouds=images)

    def _list_words(self) -> "Iterator[tuple[str, Sequence[ClassWord]]]":
        """Yield each class with the words that are printed; clouds show more."""
        for label, weighted in self.words.items():
            yield label, weighted[: self.count]

    def print_records(self) -> None:
        """Print one line of JSON per class."""
        for label, weighted in self._list_words():
            outputs.print_json({"label": label, "words": list(map(asdict, weighted))})

    def print_lines(self) -> None:
        """Print one line of text per class, and one about the words they share."""
        from clearhead.views import class_words

        for label, weighted in self._list_words():
            _print_words(label, weighted)
        if self.overlaps:
            outputs.print_wrapped(class_words.overlap_line(self.overlaps))


def _collect_words(
    explanations: "Sequence[Explanation]", weight: "Weight | None", count: int, min_texts: int | None
) -> _ClassWords:
    from clearhead.evaluation.top_words import overlap_rows, top_words, word_records

    records = word_records(explanations, weight=weight)
    words_by_class = top_words(records, count=max(count, MIN_CLOUD_WORDS), min_texts=min_texts)
    return _ClassWords(words_by_class, overlap_rows(records), count)


def _print_words(label: str, weighted: "Sequence[ClassWord]") -> None:
    from clearhead.views.text_spans import escape_hidden

    # Words come from the data and may hold control characters.
    outputs.print_wrapped(escape_hidden(f"{label}: {_format_words(weighted)}"))


def _format_words(weighted: "Sequence[ClassWord]") -> str:
    return ", ".join(map(_format_word, weighted))


def _format_word(word: "ClassWord") -> str:
    return f"{word.word} {word.weight * 100:.3g} % ({_count_texts(word.texts)})"


def _count_texts(count: int) -> str:
    return "1 text" if count == 1 else f"{count} texts"


def _draw_clouds(words_by_class: "WordsByClass") -> "dict[str, Image.Image]":
    from clearhead.views import wordcloud

    return {label: wordcloud.cloud(_pair_weights(words)) for label, words in words_by_class.items() if words}


def _pair_weights(words: "Sequence[ClassWord]") -> list[tuple[str, float]]:
    return [(word.word, word.weight) for word in words]

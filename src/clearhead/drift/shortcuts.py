"""Records of an audit: words that carry a class over many examples, and what hiding them does."""

from dataclasses import dataclass, field

from clearhead.evaluation.statistics import LEVEL, Interval

ALPHA = 1 - LEVEL
MIN_EFFECT = 0.05
"""The change of a probability that is worth a word: five points."""
MAX_NAMED_WORDS = 5
CORNER, EDGE, BACKGROUND = "corner", "edge", "background"
REGION_KINDS = (CORNER, EDGE, BACKGROUND)
ANY_CLASS = "any class"
"""The class of a region that was hidden in all images, whatever they are answered with."""


@dataclass(frozen=True)
class AuditedWord:
    """A word or a region of images, the class that it speaks for, and what hiding it wherever it stands does.

    `texts` counts the texts with the word, `concentration` is the part of them that the model answers with the class.
    `share` is the word's mean share in the relevance of these. `effect` is how far the class's probability falls when
    the word is hidden, over the texts with it; `control` when as many other words are. `p_corrected` is of a paired
    test of effect against control, by Holm. `flips` counts the answers that change.

    With labels, `accuracy` is the change of the accuracy over the whole data set, and `excess` the part of the texts
    with the word that are answered with the class less the part that have its label. `evidence` is the part of the
    word's occurrences that people marked as evidence, where the data set has annotations. `suspicions` say why the word
    may be no evidence.

    Of a region (`word` is its name), `texts` are the images that are answered with the class and have patches of it,
    `concentration` is the part of all images that they are, and effects are on the class that each is answered with.
    """

    word: str
    label: str
    kind: str
    texts: int
    concentration: float
    share: Interval
    effect: Interval
    control: float
    p_corrected: float
    flips: int
    accuracy: Interval | None = None
    excess: Interval | None = None
    evidence: float | None = None
    suspicions: tuple[str, ...] = ()

    @property
    def has_effect(self) -> bool:
        """Whether the model uses the word: hiding it lowers the class by more than hiding others does."""
        # Both: in large data sets effects are significant that no answer depends on.
        return self.is_significant and self.effect.value - self.control >= MIN_EFFECT

    @property
    def is_significant(self) -> bool:
        return self.p_corrected < ALPHA

    @property
    def is_shortcut(self) -> bool:
        """Whether the model uses the word, and it may be no evidence."""
        return self.has_effect and bool(self.suspicions)


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found: shortcuts first, then other words that the model uses, then those that it does not."""

    model: str
    task: str
    method: str
    examples: int
    accuracy: float | None
    words: tuple[AuditedWord, ...] = field(repr=False)
    notes: tuple[str, ...] = ()
    unit: str = "word"
    """What was hidden: "word", or "region" of images."""

    @property
    def shortcuts(self) -> tuple[AuditedWord, ...]:
        return tuple(word for word in self.words if word.is_shortcut)

    @property
    def inputs(self) -> str:
        """What the examples are: "texts" or "images"."""
        return "texts" if self.unit == "word" else "images"

    @property
    def sentence(self) -> str:
        """The verdict in a sentence."""
        tested = f"{_count(len(self.words), self.unit)} tested on {_count(self.examples, self.inputs[:-1])}"
        if not self.shortcuts:
            return f"No shortcut was found: {tested}."
        named = [f"'{word.word}' for {quote_class(word.label)}" for word in self.shortcuts[:MAX_NAMED_WORDS]]
        return f"{_count_shortcuts(len(self.shortcuts))}: {', '.join(named)}; {tested}."

    def _repr_html_(self) -> str:
        from clearhead.views import audit_html

        return audit_html.fragment(self)


def quote_class(label: str) -> str:
    """Return the name of a class in quotes; any class has no name."""
    return label if label == ANY_CLASS else f"'{label}'"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _count_shortcuts(shortcuts: int) -> str:
    if shortcuts == 1:
        return "1 shortcut was found"
    return f"{shortcuts} shortcuts were found"

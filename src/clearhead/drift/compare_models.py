"""diff(): what changed between two models, or between two saved snapshots."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import starmap
from typing import Any

from clearhead.drift.agreement import compare_reasons, correlate_blocks
from clearhead.drift.noise import DRAWS
from clearhead.drift.snapshot import choose_task, snapshot
from clearhead.drift.snapshot_file import is_snapshot_file, read_snapshot
from clearhead.drift.verdict import bound_examples, bound_words, collect_column, judge
from clearhead.drift.word_shifts import Pair, compare_classes, compare_words, list_answers
from clearhead.errors import BadInput, BadOption
from clearhead.model_diff import WORD, BlockAgreement, ClassShift, ExampleDiff, ModelDiff, Noise, Reasons, Snapshot

MAX_NAMED_EXAMPLES = 3


def diff(
    model_a: Any,
    model_b: Any,
    inputs: Any = None,
    *,
    task: Any = None,
    method: Any = None,
    noise: int = DRAWS,
    noise_models: Sequence[Any] = (),
    batch_size: int | None = None,
    precision: str | None = None,
    **options: Any,
) -> ModelDiff:
    """Compare the reasons of two models for their answers to the same inputs, and tell changes from noise.

    `model_a` and `model_b` are models, or snapshots or their files; two snapshots need no inputs. The other options are
    those of `snapshot`; noise is that of `model_a`, unless it is a snapshot, which has its own or none.

    >>> clearhead.diff("old", "new", task="dev.tsv").verdict.outcome     # doctest: +SKIP
    'moved within noise'
    """
    first, second = _read_saved(model_a), _read_saved(model_b)
    settings: dict[str, Any] = {"batch_size": batch_size, "precision": precision, **options}
    if first is not None and second is not None:
        _refuse_inputs(inputs, task, method)
        return compare_snapshots(first, second)
    # Read once, for both models.
    chosen = choose_task(inputs, task)
    if first is None:
        measured: dict[str, Any] = {"noise": noise, "noise_models": noise_models}
        first = snapshot(model_a, chosen, method=_choose_method(method, second), **measured, **settings)
    # By default the method of the first: another may have been chosen for the second.
    if second is None:
        second = snapshot(model_b, chosen, method=_choose_method(method, first), noise=0, **settings)
    return compare_snapshots(first, second)


def _read_saved(source: Any) -> Snapshot | None:
    """Return a snapshot, or None for a model."""
    if isinstance(source, Snapshot):
        return source
    if is_snapshot_file(source):
        return read_snapshot(source)
    return None


def _choose_method(method: Any, saved: Snapshot | None) -> Any:
    """Return the method that was asked for, by default that of a saved snapshot."""
    if method is None and saved is not None:
        return _method_key(saved)
    return method


def _refuse_inputs(inputs: Any, task: Any, method: Any) -> None:
    if inputs is not None or task is not None or method is not None:
        raise BadOption("Two snapshots are compared as they are: leave out inputs, task and method.")


def compare_snapshots(first: Snapshot, second: Snapshot) -> ModelDiff:
    """Compare two snapshots of the same examples by the same method; noise is that of the first, else of the second."""
    _require_same_question(first, second)
    noise = first.noise or second.noise
    pairs = list(map(_share_text, first.examples, second.examples))
    rows = _compare_examples(pairs, noise)
    words = compare_words(pairs, bound_words(noise))
    classes = _compare_classes(rows, pairs, first.labels)
    return ModelDiff(
        first,
        second,
        rows=tuple(sorted(rows, key=_sort_key)),
        words=words,
        classes=classes,
        blocks=tuple(_compare_blocks(pairs, noise)),
        noise=noise,
        verdict=judge(rows, noise, words, classes),
        notes=tuple(_write_notes(first, second)),
    )


def _require_same_question(first: Snapshot, second: Snapshot) -> None:
    _require_same_method(first, second)
    _require_same_examples(first, second)
    _require_same_labels(first, second)


def _compare_classes(
    rows: Sequence[ExampleDiff], pairs: Sequence[Pair], labels: Sequence[str]
) -> tuple[ClassShift, ...]:
    return compare_classes(pairs, collect_column(rows, "shift"), list_answers(pairs, labels))


def _sort_key(row: ExampleDiff) -> tuple[bool, float]:
    # The same answer for other reasons is what accuracy does not show.
    return not row.has_same_answer, -row.agreement.shift


def _compare_examples(pairs: Sequence[Pair], noise: Noise | None) -> list[ExampleDiff]:
    return list(starmap(_compare_pair, zip(pairs, bound_examples(noise, len(pairs)), strict=True)))


def _compare_pair(pair: Pair, threshold: float) -> ExampleDiff:
    return ExampleDiff(*pair, compare_reasons(*pair), float(threshold))


def _compare_blocks(pairs: Sequence[Pair], noise: Noise | None) -> Iterator[BlockAgreement]:
    for number, correlation in enumerate(correlate_blocks(pairs)):
        # What leaves the last block for the head is a single special token in many models.
        if _has_words(pairs, number):
            yield BlockAgreement(number, correlation, _lowest_agreement(noise, number))


def _has_words(pairs: Sequence[Pair], block: int) -> bool:
    """Return whether any word has a share at a block of the first model."""
    return any(first.blocks is not None and first.blocks[block].any() for first, _ in pairs)


def _lowest_agreement(noise: Noise | None, block: int) -> float | None:
    """Return the lowest agreement of a block in all draws of noise; None if there is none."""
    if noise is None:
        return None
    return min(_list_agreements(noise, block), default=None)


def _list_agreements(noise: Noise, block: int) -> list[float]:
    # Models that stand in for noise may have fewer blocks.
    return [draw.block_agreement[block] for draw in noise.sources if block < len(draw.block_agreement)]


def _share_text(first: Reasons, second: Reasons) -> Pair:
    """Return the reasons of both models, with the text that only the other has."""
    text = first.text or second.text
    return replace(first, text=text), replace(second, text=text)


def _require_same_method(first: Snapshot, second: Snapshot) -> None:
    if _method_key(first) != _method_key(second):
        raise BadInput(
            f"The explanations of '{first.model}' are by {_write_method(first)}, those of '{second.model}' by "
            f"{_write_method(second)}: take both snapshots with the same method and options."
        )


def _method_key(saved: Snapshot) -> tuple[str, dict[str, Any]]:
    return saved.method, dict(saved.options)


def _write_method(saved: Snapshot) -> str:
    name, options = _method_key(saved)
    return f"{name} ({', '.join(map('{}={}'.format, options, options.values()))})"


def _require_same_examples(first: Snapshot, second: Snapshot) -> None:
    if _digests(first) != _digests(second):
        raise BadInput(
            f"The two snapshots are not of the same inputs in the same order: '{first.task}' has {len(first)}, "
            f"'{second.task}' {len(second)}. Only in the first: {_name_missing(first, second)}. Take both of the same "
            "task."
        )


def _name_missing(first: Snapshot, second: Snapshot) -> str:
    """Name some examples of the first snapshot that the second does not have."""
    digests = set(_digests(second))
    missing = [example.id for example in first.examples if example.digest not in digests]
    return ", ".join(missing[:MAX_NAMED_EXAMPLES]) or "none"


def _digests(saved: Snapshot) -> list[str]:
    return [example.digest for example in saved.examples]


def _require_same_labels(first: Snapshot, second: Snapshot) -> None:
    if set(first.labels) != set(second.labels):
        raise BadInput(
            f"The models have different classes: '{first.model}' {', '.join(first.labels)}; '{second.model}' "
            f"{', '.join(second.labels)}. Give both the same names in id2label of their config.json."
        )


def _write_notes(first: Snapshot, second: Snapshot) -> Iterator[str]:
    if first.checksum == second.checksum:
        yield "Both models have the same weights."
    if first.noise is None:
        yield _describe_missing_noise(first, second)
    if _lacks_texts(first) and _lacks_texts(second):
        yield "Neither snapshot has texts, so words cannot be named."


def _lacks_texts(saved: Snapshot) -> bool:
    # Patches have no names anyway.
    return saved.examples[0].kind == WORD and not saved.has_texts


def _describe_missing_noise(first: Snapshot, second: Snapshot) -> str:
    if second.noise is None:
        return "No noise was measured, so fixed bounds tell changes from noise."
    return f"Noise is that of '{second.model}': the snapshot of '{first.model}' has none."

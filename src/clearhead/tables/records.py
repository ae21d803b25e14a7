"""Explanations as rows of a table: nested records with words, or flat ones for spreadsheets.

A record begins with the identity of its input (row, file, id and the columns passed through) and goes on with what the
model said and what explains it. docs/tables.md lists the columns.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any

from clearhead.answer_explanation import AnswerExplanation
from clearhead.explanation import Explanation, Word
from clearhead.joint_explanation import JointExplanation
from clearhead.plain import convert_value, encode_json

# Words in the column top_words.
TOP_WORDS = 5
IDENTITY = ("row", "file", "id")
RESULTS = ("text", "second", "answer", "gold", "predicted", "wrong", "label", "probability")
SUMMARIES = ("top_words", "check", "error")
NESTED = ("words", "tokens", "grid", "patches", "diagnostics")
PROVENANCE = ("method", "model")
OWN_COLUMNS = (*IDENTITY, *RESULTS, *SUMMARIES, *NESTED, *PROVENANCE)
FLAT_COLUMNS = (*IDENTITY, *RESULTS, *SUMMARIES)
# Columns without a value in rows that cannot be explained.
EMPTY_COLUMNS = ("predicted", "wrong", "label", "probability", "top_words", "check")
# A passed column that has the name of one of ours.
RENAMED = "input_{}"

Record = dict[str, Any]


def make_record(explanation: Explanation | JointExplanation, *, tokens: bool = False) -> Record:
    """Return an explanation as one nested record; `tokens` adds the tokens to the words."""
    if isinstance(explanation, JointExplanation):
        return _make_joint_record(explanation, tokens=tokens)
    words = _list_words(explanation)
    record = {**_identify(explanation.source), **_results(explanation, words), "words": words}
    if tokens:
        record["tokens"] = _list_tokens(explanation)
    if explanation.grid is not None:
        record["grid"] = list(explanation.grid)
        record["patches"] = _list_patches(explanation)
    return {**record, **_provenance(explanation)}


def _make_joint_record(joint: JointExplanation, *, tokens: bool) -> Record:
    """Return the record of the first text, with the patches of the picture or the second text."""
    record = make_record(joint.text, tokens=tokens)
    # A row has the columns of one picture; others are in the saved explanation.
    for image in joint.images[:1]:
        record |= {"grid": list(image.grid or ()), "patches": _list_patches(image)}
    if _has_two_texts(joint):
        record["second"] = joint.texts[1].text
    return {**record, **_provenance(joint)}


def _has_two_texts(joint: JointExplanation) -> bool:
    return not joint.images and len(joint.texts) > 1


def _list_patches(explanation: Explanation) -> list[float]:
    patches: list[float] = explanation.relevance[~explanation.special].tolist()
    return patches


def _provenance(explanation: Explanation | JointExplanation) -> Record:
    diagnostics = _convert_values(explanation.diagnostics)
    return {"diagnostics": diagnostics, "method": explanation.method, "model": explanation.model}


def _convert_values(values: Mapping[str, Any]) -> Record:
    return {name: convert_value(value) for name, value in values.items()}


def make_error_record(source: Mapping[str, Any], text: Any, reason: str) -> Record:
    """Return the record of a row that could not be explained."""
    gold = {"gold": source.get("gold"), **dict.fromkeys(EMPTY_COLUMNS)}
    return {**_identify(source), **_name_texts(text), **gold, "error": reason}


def flatten_record(record: Record) -> Record:
    """Return a record without nested values: those of the user become JSON text, ours are left out."""
    flat = {}
    for name, value in record.items():
        if name not in OWN_COLUMNS:
            flat[name] = _flatten_value(value)
        elif name in FLAT_COLUMNS:
            flat[name] = value
    return flat


def _flatten_value(value: Any) -> Any:
    if _is_nested(value):
        return encode_json(value)
    return value


def _is_nested(value: Any) -> bool:
    return isinstance(value, list | tuple | Mapping)


def _identify(source: Mapping[str, Any]) -> Record:
    return {**_name_source(source), **rename_passed(source.get("columns", {}))}


def _name_source(source: Mapping[str, Any]) -> Record:
    return {name: source.get(name) for name in IDENTITY}


def rename_passed(columns: Mapping[str, Any]) -> Record:
    """Return passed columns under names that none of our columns has."""
    return {_rename(name, columns): value for name, value in columns.items()}


def _rename(name: str, columns: Mapping[str, Any]) -> str:
    if name not in OWN_COLUMNS:
        return name
    renamed = RENAMED.format(name)
    # A table that we wrote has such a column already: neither may replace the other.
    while renamed in columns:
        renamed = RENAMED.format(renamed)
    return renamed


def _results(explanation: Explanation, words: list[Record] | None) -> Record:
    return {
        **_name_texts(_input_text(explanation)),
        **_name_answer(explanation),
        "gold": explanation.source.get("gold"),
        "predicted": explanation.diagnostics.get("predicted"),
        "wrong": explanation.is_wrong,
        "label": explanation.label,
        "probability": explanation.probability,
        "top_words": _join_top_words(explanation, words),
        "check": _verdict(explanation),
        "error": None,
    }


def _verdict(explanation: Explanation) -> str | None:
    if explanation.check is None:
        return None
    return explanation.check.verdict


def _input_text(explanation: Explanation) -> Any:
    if isinstance(explanation, AnswerExplanation):
        return _first_text(explanation.text)
    return explanation.text


def _first_text(text: Any) -> Any:
    # The texts of an answer are prompt and answer.
    if isinstance(text, tuple):
        return text[0]
    return text


def _name_answer(explanation: Explanation) -> Record:
    if isinstance(explanation, AnswerExplanation):
        return {"answer": explanation.answer}
    return {}


def _name_texts(text: Any) -> Record:
    """Return the column of a text, or the two of a pair; choices that are contrasted share the second."""
    if isinstance(text, tuple):
        first, *others = text
        return {"text": first, "second": " / ".join(others)}
    # Images and chats have no text.
    if not isinstance(text, str):
        text = None
    return {"text": text}


def _list_words(explanation: Explanation) -> list[Record] | None:
    if not _has_words(explanation):
        return None
    return list(map(_word_record, explanation.units()))


def _has_words(explanation: Explanation) -> bool:
    # Words are found in the text by the offsets of its tokens, which slow tokenizers do not give.
    return explanation.text is not None and bool(explanation.offsets)


def _word_record(word: Word) -> Record:
    return {
        "word": word.text,
        "relevance": word.relevance,
        "segment": word.segment,
        "start": word.start,
        "end": word.end,
    }


def _list_tokens(explanation: Explanation) -> list[Record]:
    rows = zip(explanation.tokens, explanation.relevance.tolist(), explanation.special.tolist(), strict=True)
    return [{"token": token, "relevance": relevance, "special": special} for token, relevance, special in rows]


def _join_top_words(explanation: Explanation, words: list[Record] | None) -> str | None:
    """Return the words that speak most for the class, in one line; None for images."""
    if explanation.grid is not None:
        return None
    return ", ".join(map(itemgetter(0), _rank_words(explanation, words)[:TOP_WORDS]))


def _rank_words(explanation: Explanation, words: list[Record] | None) -> list[tuple[str, float]]:
    """Return words and relevance, the most relevant first; tokens if the explanation has no text."""
    if words is None:
        return explanation.top(TOP_WORDS)
    return sorted(_pair_words(words), key=lambda pair: -pair[1])


def _pair_words(words: Iterable[Record]) -> list[tuple[str, float]]:
    return [(word["word"], word["relevance"]) for word in words if _speaks_for_class(word)]


def _speaks_for_class(word: Record) -> bool:
    # Punctuation alone is no word that a reader of a table could use.
    return bool(word["relevance"] > 0 and any(map(str.isalnum, word["word"])))


def list_columns(records: Sequence[Record]) -> list[str]:
    """Return the columns of all records, in the order of `order_columns`."""
    return order_columns(chain.from_iterable(records))


def order_columns(names: Iterable[str]) -> list[str]:
    """Return column names with the identity first, the user's in their order, and our others behind."""
    return list(_sort_columns(tuple(dict.fromkeys(names))))


@lru_cache
def _sort_columns(names: tuple[str, ...]) -> tuple[str, ...]:
    # Kept, because nearly all rows of a table have the same columns.
    return tuple(sorted(names, key=_column_position))


def _column_position(name: str) -> int:
    if name in IDENTITY:
        return IDENTITY.index(name)
    # Sorting is stable: columns of the user keep their order.
    if name not in OWN_COLUMNS:
        return len(IDENTITY)
    return len(IDENTITY) + OWN_COLUMNS.index(name)

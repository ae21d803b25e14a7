"""How far an explanation can be trusted, in plain words: its check, and its error bar."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from clearhead.check import FAILS, HOLDS, UNCHECKED, WEAK, Check, summarise_verdicts
from clearhead.explanation import Explanation
from clearhead.views.captions import clip, format_label
from clearhead.views.numbers import MINUS, PROBABILITY, format_score, round_percent
from clearhead.views.scale import make_scale, name_one, name_units, read_effect
from clearhead.views.text_spans import escape_hidden

MAX_NAMED_UNITS = 5
MAX_UNIT_LENGTH = 24
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
VERDICTS = {
    HOLDS: "the strongest {units} matter more than the others",
    WEAK: "the strongest {units} seem to matter more than the others, but that may be chance",
    FAILS: "the strongest {units} matter no more than the others; do not rely on this explanation",
}
# Of three units each order has a chance of 1 in 6: none is rare enough to hold.
MIN_UNITS = 4
# What a score is called before its label; a probability or a value needs no name.
SCORE_NAMES = {"log-prob": "log p of ", "logit": "the logit of ", "log-odds": "the log-odds of "}
UNCHANGED = "nothing that was hidden changed the answer"
# Smaller changes of a score are none: half a point of probability, or half a per cent of another score.
NO_CHANGE = 0.005
# Relative to the strongest unit: an error from which the order of units may be wrong.
WIDE_ERROR = 0.1
TINY_ERROR = 0.001
ERROR_SOURCES = {"sampling_error": "sampling", "rounding_error": "rounding"}


def describe_verdict(check: Check) -> str:
    """Say what the verdict of a check means."""
    if check.verdict == FAILS and not _changes_score(check):
        return UNCHANGED
    units = _name_units(check, 2)
    if check.verdict == WEAK and check.units < MIN_UNITS:
        return f"{_spell_number(check.units)} {units} are too few to tell whether the strongest matter more"
    return f"{VERDICTS[check.verdict].format(units=units)} (p = {check.p_value:.2g})"


def _changes_score(check: Check) -> bool:
    scores = np.array([check.hidden, check.hidden_random, check.shown, check.shown_random])
    tolerance = NO_CHANGE
    if check.scale != PROBABILITY:
        tolerance *= abs(check.score)
    return bool((np.abs(scores - check.score) > tolerance).any())


def _name_units(check: Check, count: int) -> str:
    if count == 1:
        return check.kind
    # Of a picture and a text that are read together both are hidden.
    return " and ".join(map(_pluralise, check.kind.split(" or ")))


def _pluralise(kind: str) -> str:
    return f"{kind}es" if kind.endswith("ch") else f"{kind}s"


def describe_removal(explanation: Explanation, check: Check) -> str:
    """Say what hiding the strongest units does, and showing nothing else, each beside random units."""
    return f"{describe_hidden(explanation, check)} {describe_shown(explanation, check)}"


def _name_score(explanation: Explanation, check: Check) -> str:
    return f"{SCORE_NAMES.get(check.scale, '')}{escape_hidden(format_label(explanation))}"


def describe_hidden(explanation: Explanation, check: Check) -> str:
    """Say what hiding the strongest units does to the score."""
    change = _describe_change(explanation, check)
    others = f"{_spell_number(check.count)} other {_name_units(check, check.count)}"
    other = _format_score(explanation, check, check.hidden_random)
    return f"Hiding {_name_strongest(check)} {change}; {others}: {other}."


def _describe_change(explanation: Explanation, check: Check) -> str:
    label = _name_score(explanation, check)
    before, after = (_format_score(explanation, check, score) for score in (check.score, check.hidden))
    if before == after:
        return f"leaves {label} at {before}"
    return f"takes {label} from {before} to {after}"


def describe_shown(explanation: Explanation, check: Check) -> str:
    """Say what the score is when nothing but the strongest units is shown."""
    strongest, others = ("these", "others")
    if check.count == 1:
        strongest, others = ("this", "other")
    shown, random = (_format_score(explanation, check, score) for score in (check.shown, check.shown_random))
    return f"Only {strongest}: {shown}; {_spell_number(check.count)} {others} alone: {random}."


def _format_score(explanation: Explanation, check: Check, score: float) -> str:
    return format_score(score, check.scale, is_contrast=explanation.target.versus is not None)


def _name_strongest(check: Check) -> str:
    if not check.strongest:
        number = "" if check.count == 1 else f"{check.count} "
        return f"the {number}strongest {_name_units(check, check.count)}"
    names = list(map(_quote_punctuation, check.strongest[:MAX_NAMED_UNITS]))
    rest = check.count - len(names)
    if rest > 0:
        names.append(f"{_spell_number(rest)} more")
    return ", ".join(names)


def _quote_punctuation(name: str) -> str:
    """Return the name of a unit in few characters; a comma would be lost among those of the list."""
    text = escape_hidden(clip(name, MAX_UNIT_LENGTH))
    if any(map(str.isalnum, text)):
        return text
    return f"“{text}”"


def _spell_number(count: int) -> str:
    if count < len(NUMBERS):
        return NUMBERS[count]
    return str(count)


def format_check(explanation: Explanation) -> str:
    """Format verdict and evidence of the check in one line, "" if none was made."""
    check = explanation.check
    if check is None:
        return ""
    return f"Check {check.verdict}: {describe_verdict(check)}. {describe_removal(explanation, check)}"


def format_unchecked(explanation: Explanation) -> str:
    """Say why an explanation could not be checked, "" if it was, or if none was asked for."""
    reason = explanation.diagnostics.get(UNCHECKED)
    return f"Not checked: {escape_hidden(reason)}" if reason else ""


def format_error(explanation: Explanation) -> str:
    """Format the error bar in one line: rounding and sampling, completeness, and agreement with other methods."""
    return " · ".join(_list_errors(explanation))


def _list_errors(explanation: Explanation) -> Iterator[str]:
    diagnostics = explanation.diagnostics
    errors = _read_errors(diagnostics)
    if errors:
        yield _format_relative_error(explanation, errors)
    if diagnostics.get("needs_float64"):
        yield "explain in float64 for reliable digits"
    if _may_lose_digits(diagnostics):
        yield f"Error bar unknown: this method may lose digits in {diagnostics['precision']}"
    gap = diagnostics.get("completeness_gap")
    # Only effects have to sum to a change of the score; of other methods biases take a part.
    if gap is not None and read_effect(explanation) is not None:
        yield f"sum off by {make_scale(explanation).format_distance(gap)}"
    agreement = diagnostics.get("agreement")
    if isinstance(agreement, float | int):
        yield f"agreement with other methods {agreement:.2f}".replace(" -", f" {MINUS}")
    for model, correlation in diagnostics.get("model_agreement", {}).items():
        yield f"rank correlation with {escape_hidden(model)} {correlation:.2f}".replace(" -", f" {MINUS}")


def _may_lose_digits(diagnostics: Mapping[str, Any]) -> bool:
    """Return whether a method that amplifies rounding has no error bar, as in batches that are not checked."""
    return bool(diagnostics.get("loses_digits")) and not _knows_rounding(diagnostics)


def _knows_rounding(diagnostics: Mapping[str, Any]) -> bool:
    return "rounding_error" in diagnostics or diagnostics.get("precision") == "float64"


def _read_errors(diagnostics: Mapping[str, Any]) -> dict[str, float]:
    errors = {}
    for key, name in ERROR_SOURCES.items():
        if diagnostics.get(key) is not None:
            errors[name] = float(diagnostics[key])
    return errors


def _format_relative_error(explanation: Explanation, errors: Mapping[str, float]) -> str:
    """Format the sum of relative errors, and what causes it."""
    total = sum(errors.values())
    title = "Wide error bar" if not total < WIDE_ERROR else "Error bar"
    unit = name_one(name_units(explanation))
    causes = " and ".join(name for name, error in errors.items() if error >= total / 10)
    return f"{title}: {_format_error_size(total)} of the strongest {unit} ({causes})"


def _format_error_size(error: float) -> str:
    if error < TINY_ERROR:
        return "less than 0.1 %"
    return f"±{round_percent(error)} %"


def summarise_checks(explanations: Iterable[Explanation]) -> str:
    """Say how many of several explanations hold; "" if fewer than two were checked."""
    verdicts = [explanation.check.verdict for explanation in explanations if explanation.check is not None]
    return summarise_verdicts(Counter(verdicts))


def summarise_methods(rows: Sequence[Mapping[str, Explanation]]) -> str:
    """Say for each method on how many of several inputs it holds; "" if fewer than two were checked."""
    if len(rows) < 2:
        return ""
    return "\n".join(_summarise_columns(rows))


def _summarise_columns(rows: Sequence[Mapping[str, Explanation]]) -> Iterator[str]:
    for name in rows[0]:
        summary = summarise_checks(row[name] for row in rows)
        if summary:
            yield f"{escape_hidden(name)}  {summary}"

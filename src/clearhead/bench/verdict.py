"""A summary in plain words: which method to use and why, what beats noise, and where no difference can be shown."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LEVEL = 0.05
FEW = 100
MORE = "measure more examples"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Standing:
    """On one value: the best method, and those not shown to be worse; `shown` when it beats all others."""

    name: str
    best: str
    leading: tuple[str, ...]
    shown: bool


def standings(summary: Mapping[str, Any]) -> list[Standing]:
    """Who leads on each value."""
    found = []
    for name in summary["values"]:
        rows = [row for row in _rows(summary, name) if math.isfinite(row["value"])]
        if not rows:
            continue
        sign = -1 if better(summary, name) == "lower" else 1
        best = max(rows, key=lambda row: sign * row["value"])["method"]
        leading = tuple(row["method"] for row in rows if row["method"] == best or not _differ(summary, name, best, row))
        found.append(Standing(name, best, leading, len(rows) > 1 and leading == (best,)))
    return found


def _differ(summary: Mapping[str, Any], name: str, first: str, row: Row) -> bool:
    """Whether a test shows the two methods to differ; untested ones are taken as alike."""
    pair = {first, row["method"]}
    found = [one for one in summary["comparisons"] if one["name"] == name and {one["first"], one["second"]} == pair]
    return bool(found) and found[0]["p_corrected"] < LEVEL


def verdict(summary: Mapping[str, Any]) -> Iterator[str]:
    """In plain words: which method to use and why, what beats noise, and where no difference can be shown."""
    found = standings(summary)
    if summary["done"] < summary["shards"]:
        yield (
            f"This run is not finished: {summary['done']} of {summary['shards']} shards are done, with "
            f"{examples_text(summary)}."
        )
    if not found:
        yield "Nothing could be measured: no example gave a finite value."
        return
    yield _advice(summary, found)
    yield from (_standing(summary, one) for one in found)
    yield from _noise(summary, found)
    if _measured(summary) < FEW:
        yield f"Only {_measured(summary)} examples were measured: more would narrow the intervals."


def examples_text(summary: Mapping[str, Any]) -> str:
    """How many examples the values stand on, and of how many where some are missing."""
    count, measured = summary["examples"], summary["measured"]
    if measured is None:
        return f"those made of {count} examples"
    return f"{count} examples" if measured == count else f"{measured} of {count} examples"


def _measured(summary: Mapping[str, Any]) -> int:
    return int(summary["examples"] if summary["measured"] is None else summary["measured"])


def _advice(summary: Mapping[str, Any], found: Sequence[Standing]) -> str:
    """Which method to use, and why; the controls are no candidates."""
    tried = [name for name in summary["methods"] if not _is_control(name)]
    if len(tried) < 2:
        only = f"Only {_listed(tried or ['the control'])} was run, so there is nothing to choose from."
        return " ".join([only, *(_against_control(summary, found, name) for name in tried)]).strip()
    if all(set(tried) <= set(one.leading) for one in found):
        return _alike(summary, found, tried)
    leads = {name: sum(name in one.leading for one in found) for name in tried}
    most = max(leads.values())
    if most == 0:
        return "On no value is any method among the best: the control does better. Trust none of them here."
    return _leader(summary, found, [name for name in tried if leads[name] == most], most)


def _leader(summary: Mapping[str, Any], found: Sequence[Standing], tied: Sequence[str], most: int) -> str:
    """Of those that lead on `most` values the one to use: by what beats noise, then by best values, then by cost."""
    merits = {name: (-_wins(summary, found, name), -sum(one.best == name for one in found)) for name in tied}
    chosen = min(tied, key=lambda name: (*merits[name], _cost(summary, name)))
    rivals = [name for name in tied if name != chosen and merits[name] == merits[chosen]]
    said = f"Use {chosen}: it is the best, or not shown to be worse than the best, on {_where(most, len(found))}"
    others = [name for name in tied if name != chosen and merits[name][0] == merits[chosen][0]]
    parts = [f"{said}{_price(summary, chosen, rivals)}.", _against_control(summary, found, chosen)]
    return " ".join(filter(None, [*parts, _as_good(summary, chosen, others)]))


def _alike(summary: Mapping[str, Any], found: Sequence[Standing], tried: Sequence[str]) -> str:
    """What to do where no method is shown to be worse than another: what beats noise counts, then the cost."""
    control = _control(summary)
    if control is None:
        return f"No difference between the methods can be shown: {_cheapest(summary, tried)}."
    wins = {name: _wins(summary, found, name) for name in tried}
    most = max(wins.values())
    if most == 0:
        return f"No difference between the methods can be shown, nor that any is better than {control}: {MORE}."
    shown = [name for name in tried if wins[name] == most]
    rest = [name for name in tried if wins[name] < most]
    said = f"shown to be better than {control} on {_where(most, len(found))}{_fewer(rest)}"
    if len(shown) == 1:
        return f"Use {shown[0]}: it is {said}. No difference between the methods themselves can be shown."
    return (
        f"{_listed(shown)} are {said}. No difference between the methods themselves can be shown: "
        f"{_cheapest(summary, shown)}."
    )


def _fewer(names: Sequence[str]) -> str:
    return f", {_listed(names)} on fewer" if names else ""


def _cheapest(summary: Mapping[str, Any], names: Sequence[str]) -> str:
    """Advice that rests on the measured cost alone, which it therefore tells."""
    chosen = min(names, key=lambda name: _cost(summary, name))
    if not math.isfinite(_cost(summary, chosen)):
        return f"take any of them, or {MORE}"
    others = [name for name in names if name != chosen]
    return f"take the cheapest, {chosen}{_price(summary, chosen, others)}, or {MORE}"


def _price(summary: Mapping[str, Any], chosen: str, rivals: Sequence[str]) -> str:
    """What a method costs and, where it was chosen for that, how much less than the next."""
    seconds = _cost(summary, chosen)
    if not math.isfinite(seconds):
        return ""
    dearer = min((_cost(summary, name), name) for name in rivals) if rivals else (math.inf, "")
    share = 0 if dearer[0] == math.inf else round(100 * (1 - seconds / dearer[0]))
    less = f", {share} % less than {dearer[1]}" if share else ""
    return f", at {time_text(seconds)} per example{less}"


def _as_good(summary: Mapping[str, Any], chosen: str, others: Sequence[str]) -> str:
    if not others:
        return ""
    cheaper = [name for name in others if _cost(summary, name) < _cost(summary, chosen)]
    prices = [f"{name} ({time_text(_cost(summary, name))})" for name in cheaper]
    note = f"; {_listed(prices)} {_costs_less(cheaper)}" if cheaper else ""
    return f"{_listed(others)} {_are(others)} not shown to be worse on as many values{note}."


def _against_control(summary: Mapping[str, Any], found: Sequence[Standing], name: str) -> str:
    """On how many values a method is shown to beat noise; nothing where no control was run."""
    control = _control(summary)
    if control is None:
        return ""
    wins = _wins(summary, found, name)
    if wins == 0:
        return f"It is not shown to be better than {control} on any value."
    return f"It is shown to be better than {control} on {_where(wins, len(found))}."


def _wins(summary: Mapping[str, Any], found: Sequence[Standing], name: str) -> int:
    """On how many values a method is shown to beat the control."""
    control = _control(summary)
    rows = [(one.name, row) for one in found for row in _rows(summary, one.name) if row["method"] == name]
    return 0 if control is None else sum(_beats(summary, value, row, control) for value, row in rows)


def _where(count: int, whole: int) -> str:
    return "every value" if count == whole else f"{count} of {whole} values"


def _costs_less(names: Sequence[str]) -> str:
    return "costs less" if len(names) == 1 else "cost less"


def _cost(summary: Mapping[str, Any], name: str) -> float:
    """Seconds per example; a method without a time comes last."""
    return summary["costs"].get(name) or math.inf


def _standing(summary: Mapping[str, Any], one: Standing) -> str:
    value = f"{one.name} ({better(summary, one.name)} is better)"
    several = [row["method"] for row in _rows(summary, one.name)]
    if len(several) == 1:
        return f"{value}: only {one.best} was measured."
    if one.shown:
        return f"{value}: {one.best} is best, and the tests show it against every other method."
    if len(one.leading) == len(several):
        return f"{value}: no difference between {_listed(several)} can be shown."
    others = [name for name in one.leading if name != one.best]
    return f"{value}: {one.best} has the best value, but no difference from {_listed(others)} can be shown."


def _noise(summary: Mapping[str, Any], found: Sequence[Standing]) -> Iterator[str]:
    """Where a method is not shown to beat the random control."""
    control = _control(summary)
    if control is None:
        yield "No control was run: add random to the methods to see what noise would score."
        return
    for one in found:
        rows = _rows(summary, one.name)
        if all(row["method"] != control for row in rows):
            continue
        weak = [row["method"] for row in rows if not _beats(summary, one.name, row, control)]
        weak = [name for name in weak if not _is_control(name)]
        if weak:
            yield f"{one.name}: {_listed(weak)} {_are(weak)} not shown to be better than {control}."


def _beats(summary: Mapping[str, Any], name: str, row: Row, control: str) -> bool:
    noise = next((one for one in _rows(summary, name) if one["method"] == control), None)
    if noise is None:
        return False
    ahead = row["value"] < noise["value"] if better(summary, name) == "lower" else row["value"] > noise["value"]
    return ahead and _differ(summary, name, control, row)


def _control(summary: Mapping[str, Any]) -> str | None:
    return next((name for name in summary["methods"] if _is_control(name)), None)


def _is_control(name: str) -> bool:
    return name.split(":")[0].split(" ")[0] == "random"


def _rows(summary: Mapping[str, Any], name: str) -> list[Row]:
    return [row for row in summary["rows"] if row["name"] == name]


def better(summary: Mapping[str, Any], name: str) -> str:
    return str(summary["values"][name])


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def time_text(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"

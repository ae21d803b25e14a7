"""Verdict in sentences: which method to use and why, what beats the control, where no difference can be shown."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import filterfalse

from clearhead.bench.controls import is_control
from clearhead.bench.evidence import Evidence, Standing, Summary
from clearhead.bench.format import format_seconds, join_names
from clearhead.evaluation.corrected_t import MIN_GROUPS

# With fewer examples the verdict says that more would narrow the intervals.
MIN_EXAMPLES = 100
MORE_EXAMPLES = "measure more examples"
# A method that costs so many times less is worth naming beside the best.
MUCH_LESS = 3
# Number by which methods are compared, higher is better.
Merit = Callable[[str], int]


def verdict(summary: Summary) -> Iterator[str]:
    """Yield sentences: which method to use and why, who leads on each value, and what does not beat the control."""
    evidence = Evidence(summary)
    if summary["done"] < summary["shards"]:
        yield _describe_progress(summary)
    if not evidence.standings:
        yield "Nothing could be measured: no example gave a finite value."
        return
    yield _advise(evidence)
    for standing in evidence.standings:
        yield _describe_standing(evidence, standing)
    yield from _compare_with_control(evidence)
    yield from _warn_of_few_examples(summary)


def _warn_of_few_examples(summary: Summary) -> Iterator[str]:
    measured = _count_measured(summary)
    if measured < MIN_GROUPS:
        yield f"Only {measured} examples were measured: too few to tell methods apart, which takes {MIN_GROUPS}."
    elif measured < MIN_EXAMPLES:
        yield f"Only {measured} examples were measured: more would narrow the intervals."


def _describe_progress(summary: Summary) -> str:
    return (
        f"This run is not finished: {summary['done']} of {summary['shards']} shards are done, with "
        f"{examples_text(summary)}."
    )


def examples_text(summary: Summary) -> str:
    """Return how many examples the values rest on, and of how many if some are missing."""
    count = summary["examples"]
    measured = summary["measured"]
    # Metrics that prepare their own examples do not tell how many of the task's they used.
    if measured is None:
        return f"those made of {count} examples"
    return f"{_format_share(measured, count)} examples"


def _format_share(count: int, total: int) -> str:
    if count == total:
        return f"{total}"
    return f"{count} of {total}"


def _count_measured(summary: Summary) -> int:
    if summary["measured"] is None:
        return int(summary["examples"])
    return int(summary["measured"])


def _advise(evidence: Evidence) -> str:
    """Return which method to use, and why; controls are no candidates."""
    if len(evidence.candidates) < 2:
        return _describe_only(evidence)
    leads = [evidence.count_leads(method) for method in evidence.candidates]
    if min(leads) == len(evidence.standings):
        return _advise_among_equals(evidence)
    if max(leads) == 0:
        return "On no value is any method among the best: the control does better. Trust none of them here."
    return _advise_leader(evidence, _select_top(evidence.candidates, evidence.count_leads))


def choose_method(evidence: Evidence) -> str | None:
    """Return the method that the advice names; None if none is shown to be better than the control."""
    candidates = [method for method in evidence.candidates if evidence.count_wins(method) > 0]
    if not candidates:
        return None
    leading = _select_top(candidates, evidence.count_leads)
    return min(_select_strongest(evidence, leading), key=evidence.cost)


def _select_top(methods: Sequence[str], merit: Merit) -> list[str]:
    """Return the methods with the highest merit."""
    highest = max(map(merit, methods))
    return [method for method in methods if merit(method) == highest]


def _describe_only(evidence: Evidence) -> str:
    subject = join_names(evidence.candidates or ["the control"])
    sentences = [f"Only {subject} was run, so there is nothing to choose from."]
    for method in evidence.candidates:
        sentences.append(_describe_wins(evidence, method))
    return " ".join(sentences).strip()


def _advise_leader(evidence: Evidence, tied: Sequence[str]) -> str:
    """Choose among the methods that lead on the most values: by wins over the control, best values, then cost."""
    equals = _select_strongest(evidence, tied)
    chosen = min(equals, key=evidence.cost)
    sentences = [
        _recommend_leader(evidence, chosen, equals),
        _describe_wins(evidence, chosen),
        _describe_equals(evidence, chosen, tied),
        _describe_trade_off(evidence, chosen, tied),
    ]
    return " ".join(filter(None, sentences))


def _describe_trade_off(evidence: Evidence, chosen: str, tied: Sequence[str]) -> str:
    """Name the best of the methods that cost much less, and on how many values it is not shown to be worse."""
    limit = evidence.cost(chosen) / MUCH_LESS
    if not math.isfinite(limit):
        return ""
    # Ties have been named with their costs.
    others = [method for method in evidence.candidates if method not in tied]
    cheap = [method for method in others if evidence.cost(method) <= limit and evidence.count_leads(method)]
    if not cheap:
        return ""
    method = min(_select_top(cheap, evidence.count_leads), key=evidence.cost)
    times = evidence.cost(chosen) / evidence.cost(method)
    values = _value_count(evidence, evidence.count_leads(method))
    return f"{_with_cost(evidence, method)} costs {times:.0f} times less, and is as good on {values}."


def _select_strongest(evidence: Evidence, methods: Sequence[str]) -> list[str]:
    # One after the other: best values decide only between methods with as many wins.
    winners = _select_top(methods, evidence.count_wins)
    return _select_top(winners, evidence.count_best)


def _recommend_leader(evidence: Evidence, chosen: str, equals: Sequence[str]) -> str:
    # The cost is compared only with methods that it alone decided against.
    cost = _describe_cost(evidence, chosen, _without(equals, chosen))
    values = _value_count(evidence, evidence.count_leads(chosen))
    return f"Use {chosen}: it is the best, or not shown to be worse than the best, on {values}{cost}."


def _without(methods: Sequence[str], excluded: str) -> list[str]:
    return [method for method in methods if method != excluded]


def _describe_equals(evidence: Evidence, chosen: str, tied: Sequence[str]) -> str:
    """Name the other methods with as many leads and wins, and those of them that cost less."""
    equals = _find_equals(evidence, chosen, tied)
    if not equals:
        return ""
    cheaper = _describe_cheaper(evidence, chosen, equals)
    return f"{join_names(equals)} {_are(equals)} not shown to be worse on as many values{cheaper}."


def _find_equals(evidence: Evidence, chosen: str, tied: Sequence[str]) -> list[str]:
    wins = evidence.count_wins(chosen)
    return [method for method in _without(tied, chosen) if evidence.count_wins(method) == wins]


def _describe_cheaper(evidence: Evidence, chosen: str, rivals: Sequence[str]) -> str:
    """Name the rivals that cost less than the chosen method, with their cost; empty if none does."""
    cheaper = [_with_cost(evidence, method) for method in _find_cheaper(evidence, chosen, rivals)]
    if not cheaper:
        return ""
    return f"; {join_names(cheaper)} {_cost_verb(cheaper)} less"


def _find_cheaper(evidence: Evidence, chosen: str, rivals: Sequence[str]) -> list[str]:
    return [method for method in rivals if evidence.cost(method) < evidence.cost(chosen)]


def _cost_verb(names: Sequence[str]) -> str:
    return "costs" if len(names) == 1 else "cost"


def _with_cost(evidence: Evidence, method: str) -> str:
    return f"{method} ({format_seconds(evidence.cost(method))})"


def _advise_among_equals(evidence: Evidence) -> str:
    """Advise where no method is shown to be worse than another: by wins over the control, then by cost."""
    candidates = evidence.candidates
    if evidence.control is None:
        return f"No difference between the methods can be shown: {_recommend_cheapest(evidence, candidates)}."
    winners = _select_top(candidates, evidence.count_wins)
    if evidence.count_wins(winners[0]) == 0:
        return (
            "No difference between the methods can be shown, nor that any is better than "
            f"{evidence.control}: {MORE_EXAMPLES}."
        )
    return _recommend_winners(evidence, winners)


def _recommend_winners(evidence: Evidence, winners: Sequence[str]) -> str:
    reason = _describe_winners(evidence, winners)
    if len(winners) == 1:
        return f"Use {winners[0]}: it is {reason}. No difference between the methods themselves can be shown."
    return (
        f"{join_names(winners)} are {reason}. No difference between the methods themselves can be shown: "
        f"{_recommend_cheapest(evidence, winners)}."
    )


def _describe_winners(evidence: Evidence, winners: Sequence[str]) -> str:
    """Return on how many values the winners beat the control, and which methods do on fewer."""
    values = _value_count(evidence, evidence.count_wins(winners[0]))
    return f"shown to be better than {evidence.control} on {values}{_describe_rest(evidence, winners)}"


def _describe_rest(evidence: Evidence, winners: Sequence[str]) -> str:
    rest = [method for method in evidence.candidates if method not in winners]
    if not rest:
        return ""
    return f", {join_names(rest)} on fewer"


def _recommend_cheapest(evidence: Evidence, methods: Sequence[str]) -> str:
    """Recommend by the measured cost alone, and state it."""
    chosen = min(methods, key=evidence.cost)
    # The least cost is infinite if none was measured.
    if not math.isfinite(evidence.cost(chosen)):
        return f"take any of them, or {MORE_EXAMPLES}"
    cost = _describe_cost(evidence, chosen, _without(methods, chosen))
    return f"take the cheapest, {chosen}{cost}, or {MORE_EXAMPLES}"


def _describe_cost(evidence: Evidence, chosen: str, rivals: Sequence[str]) -> str:
    """Return what a method costs, and how much less than the cheapest rival."""
    seconds = evidence.cost(chosen)
    if not math.isfinite(seconds):
        return ""
    return f", at {format_seconds(seconds)} per example{_describe_saving(evidence, seconds, rivals)}"


def _describe_saving(evidence: Evidence, seconds: float, rivals: Sequence[str]) -> str:
    if not rivals:
        return ""
    # Of rivals that cost the same, the first by name.
    rival = min(sorted(rivals), key=evidence.cost)
    percent = _percent_less(seconds, evidence.cost(rival))
    # Rounded to 0 the difference is within the noise of timing, and not mentioned.
    if percent == 0:
        return ""
    return f", {percent} % less than {rival}"


def _percent_less(seconds: float, reference: float) -> int:
    """Return how much less a method costs than another; 0 if the other was not measured."""
    if reference == math.inf:
        return 0
    return round(100 * (1 - seconds / reference))


def _describe_wins(evidence: Evidence, method: str) -> str:
    """Return on how many values a method is shown to beat the control; empty if no control was run."""
    if evidence.control is None:
        return ""
    wins = evidence.count_wins(method)
    if wins == 0:
        return f"It is not shown to be better than {evidence.control} on any value."
    return f"It is shown to be better than {evidence.control} on {_value_count(evidence, wins)}."


def _value_count(evidence: Evidence, count: int) -> str:
    total = len(evidence.standings)
    if count == total:
        return "every value"
    return f"{count} of {total} values"


def _describe_standing(evidence: Evidence, standing: Standing) -> str:
    direction = evidence.better[standing.name]
    return f"{standing.name} ({direction} is better): {_describe_lead(evidence, standing)}."


def _describe_lead(evidence: Evidence, standing: Standing) -> str:
    """Return how far the best method is shown to be the best."""
    if standing.shown:
        return f"{standing.best} is best, and the tests show it against every other method"
    # Leading alone without being shown: no other method has a finite value.
    if standing.leading == (standing.best,):
        return f"only {standing.best} was measured"
    return _describe_shared_lead(evidence, standing)


def _describe_shared_lead(evidence: Evidence, standing: Standing) -> str:
    methods = list(evidence.measured(standing.name))
    if len(standing.leading) == len(methods):
        return f"no difference between {join_names(methods)} can be shown"
    rivals = join_names(_without(standing.leading, standing.best))
    return f"{standing.best} has the best value, but no difference from {rivals} can be shown"


def _compare_with_control(evidence: Evidence) -> Iterator[str]:
    """Yield for each value the methods that are not shown to beat the control."""
    if evidence.control is None:
        yield "No control was run: add random to the methods to see what noise would score."
        return
    for standing in evidence.standings:
        losers = _find_losers(evidence, standing.name)
        if losers:
            yield f"{standing.name}: {_describe_losers(losers)} than {evidence.control}."


def _describe_losers(losers: Sequence[str]) -> str:
    return f"{join_names(losers)} {_are(losers)} not shown to be better"


def _find_losers(evidence: Evidence, name: str) -> list[str]:
    """Return the methods that are not shown to beat the control; none if the control was not measured."""
    methods = evidence.measured(name)
    if evidence.control not in methods:
        return []
    candidates = filterfalse(is_control, methods)
    return [method for method in candidates if not evidence.beats_control(name, method)]


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"

"""Verdict in sentences: which method to use and why, what beats the control, where no difference can be shown."""

import math
from collections.abc import Iterator, Sequence

from clearhead.bench.controls import is_control
from clearhead.bench.evidence import Evidence, Standing, Summary
from clearhead.bench.format import format_seconds, join_names

# With fewer examples the verdict says that more would narrow the intervals.
MIN_EXAMPLES = 100
MORE_EXAMPLES = "measure more examples"


def verdict(summary: Summary) -> Iterator[str]:
    """Yield sentences: which method to use and why, who leads on each value, and what does not beat the control."""
    evidence = Evidence(summary)
    if summary["done"] < summary["shards"]:
        shards = f"{summary['done']} of {summary['shards']} shards"
        yield f"This run is not finished: {shards} are done, with {examples_text(summary)}."
    if not evidence.standings:
        yield "Nothing could be measured: no example gave a finite value."
        return
    yield _advise(evidence)
    for standing in evidence.standings:
        yield _describe_standing(evidence, standing)
    yield from _compare_with_control(evidence)
    measured = _count_measured(summary)
    if measured < MIN_EXAMPLES:
        yield f"Only {measured} examples were measured: more would narrow the intervals."


def examples_text(summary: Summary) -> str:
    """Return how many examples the values rest on, and of how many if some are missing."""
    count = summary["examples"]
    measured = summary["measured"]
    if measured is None:
        return f"those made of {count} examples"
    if measured == count:
        return f"{count} examples"
    return f"{measured} of {count} examples"


def _count_measured(summary: Summary) -> int:
    measured = summary["measured"]
    if measured is None:
        measured = summary["examples"]
    return int(measured)


def _advise(evidence: Evidence) -> str:
    """Return which method to use, and why; controls are no candidates."""
    candidates = evidence.candidates
    if len(candidates) < 2:
        return _describe_only(evidence)
    leads = {method: evidence.count_leads(method) for method in candidates}
    if min(leads.values()) == len(evidence.standings):
        return _advise_among_equals(evidence)
    most = max(leads.values())
    if most == 0:
        return "On no value is any method among the best: the control does better. Trust none of them here."
    return _advise_leader(evidence, [method for method in candidates if leads[method] == most])


def _describe_only(evidence: Evidence) -> str:
    subject = join_names(evidence.candidates or ["the control"])
    sentences = [f"Only {subject} was run, so there is nothing to choose from."]
    for method in evidence.candidates:
        sentences.append(_describe_wins(evidence, method))
    return " ".join(sentences).strip()


def _advise_leader(evidence: Evidence, tied: Sequence[str]) -> str:
    """Choose among the methods that lead on the most values: by wins over the control, best values, then cost."""

    def merit(method: str) -> tuple[int, int]:
        return evidence.count_wins(method), evidence.count_best(method)

    strongest = max(merit(method) for method in tied)
    equals = [method for method in tied if merit(method) == strongest]
    chosen = min(equals, key=evidence.cost)
    # The cost is compared only with methods that it alone decided against.
    cost = _describe_cost(evidence, chosen, _without(equals, chosen))
    values = _value_count(evidence, evidence.count_leads(chosen))
    sentences = [
        f"Use {chosen}: it is the best, or not shown to be worse than the best, on {values}{cost}.",
        _describe_wins(evidence, chosen),
        _describe_equals(evidence, chosen, tied),
    ]
    return " ".join(filter(None, sentences))


def _without(methods: Sequence[str], excluded: str) -> list[str]:
    return [method for method in methods if method != excluded]


def _describe_equals(evidence: Evidence, chosen: str, tied: Sequence[str]) -> str:
    """Name the other methods with as many leads and wins, and those of them that cost less."""
    wins = evidence.count_wins(chosen)
    equals = [method for method in _without(tied, chosen) if evidence.count_wins(method) == wins]
    if not equals:
        return ""
    sentence = f"{join_names(equals)} {_are(equals)} not shown to be worse on as many values"
    cheaper = [method for method in equals if evidence.cost(method) < evidence.cost(chosen)]
    if cheaper:
        costs = [f"{method} ({format_seconds(evidence.cost(method))})" for method in cheaper]
        verb = "costs" if len(cheaper) == 1 else "cost"
        sentence = f"{sentence}; {join_names(costs)} {verb} less"
    return f"{sentence}."


def _advise_among_equals(evidence: Evidence) -> str:
    """Advise where no method is shown to be worse than another: by wins over the control, then by cost."""
    candidates = evidence.candidates
    if evidence.control is None:
        return f"No difference between the methods can be shown: {_recommend_cheapest(evidence, candidates)}."
    wins = {method: evidence.count_wins(method) for method in candidates}
    most = max(wins.values())
    if most == 0:
        return (
            "No difference between the methods can be shown, nor that any is better than "
            f"{evidence.control}: {MORE_EXAMPLES}."
        )
    winners = [method for method in candidates if wins[method] == most]
    rest = [method for method in candidates if wins[method] < most]
    return _recommend_winners(evidence, winners, rest)


def _recommend_winners(evidence: Evidence, winners: Sequence[str], rest: Sequence[str]) -> str:
    values = _value_count(evidence, evidence.count_wins(winners[0]))
    reason = f"shown to be better than {evidence.control} on {values}"
    if rest:
        reason = f"{reason}, {join_names(rest)} on fewer"
    if len(winners) == 1:
        return f"Use {winners[0]}: it is {reason}. No difference between the methods themselves can be shown."
    return (
        f"{join_names(winners)} are {reason}. No difference between the methods themselves can be shown: "
        f"{_recommend_cheapest(evidence, winners)}."
    )


def _recommend_cheapest(evidence: Evidence, methods: Sequence[str]) -> str:
    """Recommend by the measured cost alone, and state it."""
    chosen = min(methods, key=evidence.cost)
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
    rival_seconds, rival = min((evidence.cost(method), method) for method in rivals)
    if rival_seconds == math.inf:
        return ""
    # Rounded to 0 the difference is within the noise of timing, and not mentioned.
    percent = round(100 * (1 - seconds / rival_seconds))
    return f", {percent} % less than {rival}" if percent else ""


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
    value = f"{standing.name} ({evidence.better[standing.name]} is better)"
    methods = list(evidence.measured(standing.name))
    if standing.shown:
        return f"{value}: {standing.best} is best, and the tests show it against every other method."
    # Leading alone without being shown: no other method has a finite value.
    if standing.leading == (standing.best,):
        return f"{value}: only {standing.best} was measured."
    if len(standing.leading) == len(methods):
        return f"{value}: no difference between {join_names(methods)} can be shown."
    rivals = join_names(_without(standing.leading, standing.best))
    return f"{value}: {standing.best} has the best value, but no difference from {rivals} can be shown."


def _compare_with_control(evidence: Evidence) -> Iterator[str]:
    """Yield for each value the methods that are not shown to beat the control."""
    control = evidence.control
    if control is None:
        yield "No control was run: add random to the methods to see what noise would score."
        return
    for standing in evidence.standings:
        name = standing.name
        if control not in evidence.measured(name):
            continue
        losers = []
        for method in evidence.measured(name):
            if not is_control(method) and not evidence.beats_control(name, method):
                losers.append(method)
        if losers:
            yield f"{name}: {join_names(losers)} {_are(losers)} not shown to be better than {control}."


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"

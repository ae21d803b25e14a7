"""A test of a model beside a baseline: what the fixture `explanations` of the pytest plugin returns."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from clearhead.drift.check_reasons import check_reasons
from clearhead.drift.gate import Thresholds, judge_release
from clearhead.drift.word_assertions import name_strongest
from clearhead.model_diff import ExampleDiff, ModelDiff, Reasons, Snapshot

MAX_NAMED_EXAMPLES = 3


@dataclass(frozen=True)
class BaselineTest:
    """A model beside a baseline, compared when it is first asked; model and task are those of `check_reasons`."""

    baseline: Snapshot | str | Path
    model: Any = None
    task: Any = None

    @cached_property
    def diff(self) -> ModelDiff:
        """What changed from the baseline to the model."""
        return check_reasons(self.baseline, self.model, task=self.task).diff

    def assert_same_reasons(self, *, min_agreement: float | None = None, max_shift: float | None = None) -> None:
        """Assert that reasons moved no more than by noise or, if there are thresholds, no more than these allow."""
        result = judge_release(self.diff, Thresholds(min_agreement, max_shift))
        if not result.passes:
            examples = map(_describe_example, self.diff.rows[:MAX_NAMED_EXAMPLES])
            raise AssertionError("\n".join([result.summary, *examples]))


def _describe_example(row: ExampleDiff) -> str:
    return "\n".join(_describe_lines(row))


def _describe_lines(row: ExampleDiff) -> Iterator[str]:
    yield f"{row.first.id}: {row.agreement.shift:.0%} moved."
    yield f"  Before: {_describe_reasons(row.first)}"
    yield f"  After: {_describe_reasons(row.second)}"


def _describe_reasons(reasons: Reasons) -> str:
    return f"{reasons.prediction}. {name_strongest(reasons)}"


def assert_same_reasons(
    baseline: Snapshot | str | Path,
    model: Any = None,
    *,
    task: Any = None,
    min_agreement: float | None = None,
    max_shift: float | None = None,
) -> None:
    """Assert that a model still decides for the reasons of a baseline (see `check_reasons`)."""
    test = BaselineTest(baseline, model, task)
    test.assert_same_reasons(min_agreement=min_agreement, max_shift=max_shift)

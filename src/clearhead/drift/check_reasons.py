"""check_reasons(): does a model still decide for the reasons of a baseline?"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clearhead.data.task import Example, Task, input_digest
from clearhead.drift.compare_models import diff
from clearhead.drift.gate import GateResult, Thresholds, judge_release
from clearhead.drift.snapshot_file import is_snapshot_file, read_snapshot
from clearhead.errors import BadInput
from clearhead.model_diff import Reasons, Snapshot


def check_reasons(
    baseline: Snapshot | str | Path,
    model: Any = None,
    inputs: Any = None,
    *,
    task: Any = None,
    min_agreement: float | None = None,
    max_shift: float | None = None,
    batch_size: int | None = None,
    precision: str | None = None,
) -> GateResult:
    """Compare a model with a baseline, and judge the difference by thresholds, or by the noise of the baseline.

    `model` is a model, or a snapshot of one; by default the one that the baseline names, as it is now. Without inputs
    and task, the texts of the baseline are used.

    >>> clearhead.check_reasons("baseline.json", "my-model").passes     # doctest: +SKIP
    True
    """
    # First, so that a mistake is reported before anything is computed.
    thresholds = Thresholds(min_agreement, max_shift)
    if not isinstance(baseline, Snapshot):
        baseline = read_snapshot(baseline)
    if model is None:
        model = baseline.model
    if inputs is None and task is None and not _is_saved(model):
        inputs = restore_task(baseline)
    return judge_release(
        diff(baseline, model, inputs, task=task, batch_size=batch_size, precision=precision), thresholds
    )


def _is_saved(model: Any) -> bool:
    return isinstance(model, Snapshot) or is_snapshot_file(model)


def restore_task(baseline: Snapshot) -> Task:
    """Return the task of a baseline from the texts in it; raise BadInput if they are not what was explained."""
    return Task(baseline.task, list(_restore_examples(baseline)))


def _restore_examples(baseline: Snapshot) -> Iterator[Example]:
    for reasons in baseline.examples:
        example = Example(reasons.id, reasons.text, reasons.label)
        if not _is_input(example, reasons):
            raise _lacks_inputs(baseline)
        yield example


def _is_input(example: Example, reasons: Reasons) -> bool:
    # The text of a chat is not what was given, nor is anything of an image.
    return example.input is not None and input_digest(example) == reasons.digest


def _lacks_inputs(baseline: Snapshot) -> BadInput:
    return BadInput(
        f"The baseline does not hold its inputs, which were left out or are no texts: name the data, "
        f"'{baseline.task}', as task."
    )

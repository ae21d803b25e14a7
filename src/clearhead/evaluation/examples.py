"""What metrics read from explained examples: an explanation by key, the label's class, the inputs as a batch."""

from collections.abc import Sequence
from typing import Any

from clearhead.arrays import Array
from clearhead.data.task import Example
from clearhead.errors import Argument, BadInput, ClearheadError
from clearhead.evaluation.metric import ExplainedExample
from clearhead.explanation import Explanation
from clearhead.model.focus import FocusedInput
from clearhead.model.inputs import Encoded, Inputs, collate, encode
from clearhead.model.model import Model
from clearhead.model.target import class_index


def explanation_for(case: ExplainedExample, key: str) -> Explanation:
    """Return the explanation of "prediction", "label", "start", "end" or a class number; raise BadInput without one."""
    if key not in case.explanations:
        raise _missing_explanation(case, key)
    return case.explanations[key]


def _missing_explanation(case: ExplainedExample, key: str) -> BadInput:
    return BadInput(
        f"Example '{case.example.id}' has no explanation of its {key}. Available: {', '.join(case.explanations)}."
    )


def real_relevance(explanation: Explanation) -> Array:
    """Return the relevance of the tokens that are not special."""
    return explanation.relevance[~explanation.special]


def focused_input(example: Example) -> Any:
    """Return the input of an example as it is encoded: with its focus, if it has one."""
    if example.focus is None:
        return example.raw
    return FocusedInput(example.raw, example.focus)


def label_index(model: Model, example: Example) -> int:
    """Return the class number of an example's label; raise BadInput that names the example if it has none."""
    if example.label is None:
        raise _missing_label(example)
    try:
        return class_index(example.label, model.labels)
    except ClearheadError as error:
        raise _unknown_label(example, error) from error


def describe_gold(model: Model, example: Example) -> dict[str, Any]:
    """Return the label of an example as the `source` of explanations tells it; nothing without classes or a label."""
    if example.label is None or model.writes or not model.labels:
        return {}
    try:
        return {"gold": model.labels[label_index(model, example)]}
    except BadInput:
        # Such a label cannot be compared with a prediction.
        return {"gold": str(example.label), "gold_is_class": False}


def _unknown_label(example: Example, error: ClearheadError) -> BadInput:
    return BadInput(f"Example '{example.id}' is labelled {example.label!r}. {error}")


def _missing_label(example: Example) -> BadInput:
    problem = f"Example '{example.id}' has no label, which this metric needs: name it with "
    return BadInput(problem, Argument("label_column"), ".")


def collate_examples(model: Model, cases: Sequence[ExplainedExample]) -> Inputs:
    """Return the examples' inputs as one batch, truncated to what the model takes."""
    # The cases of several methods share their examples, which are encoded once.
    cache: dict[int, Encoded] = {}
    return collate(model, [_encode_example(model, case, cache) for case in cases])


def _encode_example(model: Model, case: ExplainedExample, cache: dict[int, Encoded]) -> Encoded:
    if case.encoded is not None:
        return case.encoded
    return _encode_once(model, case.example, cache)


def _encode_once(model: Model, example: Example, cache: dict[int, Encoded]) -> Encoded:
    # By identity: an example may hold an image, which would be compared pixel by pixel.
    key = id(example)
    if key not in cache:
        cache[key] = encode(model, focused_input(example), overflow="truncate")
    return cache[key]

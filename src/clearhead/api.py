"""explain and compare: from raw inputs to explanations, in batches, one trace for all methods."""

from collections.abc import Iterable, Sequence
from typing import Any

from clearhead.attribution.batch import explain_inputs, validate_request
from clearhead.attribution.method import parse_method
from clearhead.attribution.names import DEFAULT_METHOD
from clearhead.explanation import Comparison, Explanations
from clearhead.model.inputs import is_single, validate_overflow
from clearhead.model.loading import as_model
from clearhead.model.placement import with_precision
from clearhead.model.target import TargetLike
from clearhead.spec import as_list


def explain(
    model: Any,
    inputs: Any,
    method: Any = DEFAULT_METHOD,
    target: TargetLike | Sequence[TargetLike] = None,
    *,
    batch_size: int | None = None,
    precision: str | None = None,
    long: str = "error",
    **options: Any,
) -> Any:
    """One input gives an Explanation; a list, or a batch of tensors, gives a list of them.

    `target` is None (the prediction), a class index, a label, a Target, or a list with one per input. Further keyword
    arguments are the method's options. `precision="float64"` computes in a float64 copy of the model; `long` says what
    to do with texts longer than the model takes: "error", "truncate" or "windows".

    >>> clearhead.explain(clearhead.load(), "a joyless, tedious film", "att-cat").top(2)     # doctest: +SKIP
    """
    spelling = parse_method(method, **options)
    found = compare(model, inputs, [spelling], target, batch_size=batch_size, precision=precision, long=long)
    return found[spelling.text]


def compare(
    model: Any,
    inputs: Any,
    methods: Iterable[Any] | None = None,
    target: TargetLike | Sequence[TargetLike] = None,
    *,
    batch_size: int | None = None,
    precision: str | None = None,
    long: str = "error",
) -> dict[str, Any]:
    """Several methods from one trace: {name as spelled: Explanation, or list of them}."""
    model = with_precision(as_model(model), precision)
    spellings = [parse_method(one) for one in as_list(DEFAULT_METHOD if methods is None else methods)]
    validate_request(spellings, batch_size)
    validate_overflow(long)
    rows = list(explain_inputs(model, inputs, spellings, target, batch_size, long))
    found = {spelling.text: Explanations(row[place] for row in rows) for place, spelling in enumerate(spellings)}
    return Comparison({name: several[0] for name, several in found.items()} if is_single(inputs) else found)

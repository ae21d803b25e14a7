"""Several models on the same inputs: whether they can be compared, by which method, and how far they agree."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from clearhead.attribution.method import MethodSpec, library_default, resolve_method
from clearhead.attribution.names import (
    DEFAULT_ANSWER_METHOD,
    DEFAULT_FUNCTION_METHOD,
    DEFAULT_INPUT_METHOD,
    DEFAULT_METHOD,
)
from clearhead.data.objects import as_plain_inputs, is_frame
from clearhead.drift.compare_explanations import InputDiff, compare_explanations
from clearhead.errors import Argument, BadInput, BadOption
from clearhead.explanation import Comparison, Explanation, Explanations, ModelComparison
from clearhead.joint_explanation import JointExplanation
from clearhead.model.loading import as_model
from clearhead.model.model import Model
from clearhead.spec import as_list

MODEL_AGREEMENT = "model_agreement"
"""The diagnostic with the rank correlation to the explanations of other models, by their names."""

# The method that needs least of a model comes first.
DEFAULTS = (DEFAULT_FUNCTION_METHOD, DEFAULT_INPUT_METHOD, DEFAULT_ANSWER_METHOD, DEFAULT_METHOD)
MAX_CLASSES = 5


def compare_models(
    models: Any, inputs: Any, methods: Any, target: Any, compare_one: Callable[..., Any]
) -> ModelComparison:
    """Explain the same inputs in several models by the same methods; `compare_one` does so for one model."""
    named = name_models(models)
    require_comparable(named, has_target=target is not None)
    specs = resolve_methods(list(named.values()), methods)
    # A generator can be read only once; tables keep their columns.
    listed = inputs if is_frame(inputs) else as_plain_inputs(inputs)
    compared = ModelComparison()
    for name, model in named.items():
        compared[name] = compare_one(model, listed, specs, target)
    return _note_agreements(compared)


def name_models(models: Any) -> dict[str, Model]:
    """Load models and return them by name: that of a mapping, else each model's own."""
    _require_some(models)
    if isinstance(models, Mapping):
        return {name: _rename(as_model(model), str(name)) for name, model in models.items()}
    named: dict[str, Model] = {}
    for model in map(as_model, models):
        if model.name in named:
            raise BadOption(
                f"Two models are called '{model.name}': compare different models, or name them in a mapping, such as "
                '{"before": first, "after": second}.'
            )
        named[model.name] = model
    return named


def _require_some(models: Any) -> None:
    if not models:
        raise BadOption("The list of models is empty: give two or more models to compare.")


def _rename(model: Model, name: str) -> Model:
    return replace(model, name=name)


def resolve_methods(models: Sequence[Model], methods: Iterable[Any] | None) -> list[MethodSpec]:
    """Parse methods for several models; without any, return the default that all of them can be explained by."""
    if methods is None:
        return [_choose_default(models)]
    return [resolve_method(models[0], name) for name in as_list(methods)]


def _choose_default(models: Sequence[Model]) -> MethodSpec:
    defaults = set(map(library_default, models))
    if len(defaults) == 1:
        return resolve_method(models[0], None)
    name = next(name for name in DEFAULTS if name in defaults)
    return resolve_method(models[0], name)


def require_comparable(models: Mapping[str, Model], *, has_target: bool) -> None:
    """Raise BadInput unless all models read the same kind of input and have the same classes, or a class is named."""
    first, *others = models.items()
    for other in others:
        _require_same_kind(first, other)
        # Whoever names a class by its number says that it is the same in both.
        if not has_target:
            _require_same_classes(first, other)


def _require_same_kind(first: tuple[str, Model], second: tuple[str, Model]) -> None:
    tasks = [_name_task(model) for _, model in (first, second)]
    if tasks[0] != tasks[1]:
        raise BadInput(
            f"'{first[0]}' {tasks[0]}, but '{second[0]}' {tasks[1]}: compare models that answer the same question "
            "about the same input."
        )


def _name_task(model: Model) -> str:
    if model.writes:
        return "writes text"
    if model.reads_pairs:
        return f"compares {'pictures' if model.network.takes_images else 'texts'} with texts"
    if model.reads_jointly:
        return "reads a picture and a text as one sequence"
    if model.chooses:
        return "chooses among texts"
    if model.has_focus:
        return "labels words, masks, boxes or pixels"
    return "reads images" if model.takes_images else "reads texts"


def _require_same_classes(first: tuple[str, Model], second: tuple[str, Model]) -> None:
    if _have_other_classes(first[1], second[1]):
        raise BadInput(
            f"The models have different classes: '{first[0]}' {list_classes(first[1])}; '{second[0]}' "
            f"{list_classes(second[1])}. Name the class to explain with ",
            Argument("target"),
            ": a label that both have, or its number.",
        )


def _have_other_classes(first: Model, second: Model) -> bool:
    # What a model writes, and the words of its vocabulary, are no classes that somebody named.
    if first.writes or first.names_words or first.reads_pairs:
        return False
    return set(first.labels) != set(second.labels)


def list_classes(model: Model) -> str:
    """Return the names of the first classes."""
    # Models may have a thousand of them.
    names = ", ".join(model.labels[:MAX_CLASSES])
    return names if len(model.labels) <= MAX_CLASSES else f"{names} …"


def _note_agreements(compared: ModelComparison) -> ModelComparison:
    """Return the same with the agreement between models in the diagnostics."""
    noted = ModelComparison()
    for name in compared:
        noted[name] = Comparison()
    for method in next(iter(compared.values())):
        columns = note_columns([comparison[method] for comparison in compared.values()])
        for name, column in zip(compared, columns, strict=True):
            noted[name][method] = column
    return noted


def note_columns(columns: Sequence[Any]) -> list[Any]:
    """Add the agreement to the explanations of each model: one, or a list with one per input."""
    if isinstance(columns[0], Explanation | JointExplanation):
        return note_agreement(columns)
    rows = list(map(note_agreement, zip(*columns, strict=True)))
    return [Explanations(list(column)) for column in zip(*rows, strict=True)]


def note_agreement(explanations: Sequence[Any]) -> list[Any]:
    """Return one input as several models explain it, with the agreement of each with the others."""
    correlations: list[dict[str, float]] = [{} for _ in explanations]
    for first, second in combinations(range(len(explanations)), 2):
        diff = compare_pair(explanations[first], explanations[second])
        if diff is not None:
            correlations[first][explanations[second].model] = diff.agreement.correlation
            correlations[second][explanations[first].model] = diff.agreement.correlation
    return list(map(_note_correlations, explanations, correlations))


def _note_correlations(explanation: Any, correlations: Mapping[str, float]) -> Any:
    if not correlations:
        return explanation
    return replace(explanation, diagnostics={**explanation.diagnostics, MODEL_AGREEMENT: dict(correlations)})


def compare_pair(first: Any, second: Any) -> InputDiff | None:
    """Compare two explanations of one input; None if they have no words, tokens or patches in common to rank."""
    # The relevance of a picture and of words has no common order.
    if isinstance(first, JointExplanation) or isinstance(second, JointExplanation):
        return None
    try:
        diff = compare_explanations(first, second)
    except BadInput:
        return None
    # A single word has no order.
    return diff if len(diff.first_U) > 1 else None

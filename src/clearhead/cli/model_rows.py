"""clearhead compare with several models: which may be compared, and how the result is delivered."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.cli import outputs
from clearhead.cli.cards import removal_card
from clearhead.errors import BadOption

if TYPE_CHECKING:
    from clearhead.explanation import Explanation
    from clearhead.model.model import Model
    from clearhead.views.model_grid import ModelRow


def refuse_repeated(names: Sequence[str | None]) -> None:
    """Raise BadOption for a model that is named twice, before any is loaded."""
    folders = [Path(name or "").resolve() for name in names]
    for index, folder in enumerate(folders):
        if folder in folders[:index]:
            raise BadOption(
                f"--model {names[index]} is given twice: a model agrees with itself. Name different models."
            )


def require_comparable(models: "Sequence[Model]", target: str | None) -> None:
    """Raise BadInput unless several models can be compared."""
    from clearhead.drift import side_by_side

    if len(models) > 1:
        side_by_side.require_comparable(side_by_side.name_models(models), has_target=target is not None)


def deliver(
    models: "Sequence[Model]",
    inputs: Sequence[Any],
    rows: "Mapping[str, Sequence[Mapping[str, Explanation]]]",
    *,
    out: Path | None,
    json: bool,
    curves: bool,
) -> None:
    """Write and print what several models make of the same inputs; `rows` are those of each model."""
    from clearhead.views.model_grid import group_rows

    grid = list(map(_note_row, group_rows(rows)))
    outputs.deliver(
        list(_name_explanations(grid)),
        out=out,
        json=json,
        render_page=partial(_render_bodies, models, inputs, grid, curves=curves),
        show=partial(outputs.show_models, grid, everything=out is None),
    )


def _note_row(row: "ModelRow") -> "ModelRow":
    """Return the explanations of one input with the agreement between the models."""
    from clearhead.drift.side_by_side import note_agreement

    noted = {}
    for method, by_model in row.items():
        noted[method] = dict(zip(by_model, note_agreement(list(by_model.values())), strict=True))
    return noted


def _name_explanations(grid: "Sequence[ModelRow]") -> "Iterator[tuple[str, Explanation]]":
    """Yield all explanations with their methods: input by input, method by method, model by model."""
    for row in grid:
        for method, by_model in row.items():
            for explanation in by_model.values():
                yield method, explanation


def _render_bodies(
    models: "Sequence[Model]", inputs: Sequence[Any], grid: "Sequence[ModelRow]", *, curves: bool
) -> list[str]:
    from clearhead.views import html, model_grid

    bodies = html.summarise_rows(list(map(model_grid.flatten_row, grid)))
    for raw, row in zip(inputs, grid, strict=True):
        bodies.append(model_grid.card(row))
        # Only on demand: curves take many more passes through the model.
        if curves:
            bodies += _render_curves(models, raw, row)
    return bodies


def _render_curves(models: "Sequence[Model]", raw: Any, row: "ModelRow") -> Iterator[str]:
    for model in models:
        by_method = {method: by_model[model.name] for method, by_model in row.items()}
        yield removal_card(model, raw, by_method, model.name)

"""Explains the batches of a pipeline, such as Ray Data, that reads, distributes and writes tables itself."""

from typing import Any

from clearhead.attribution.method import default_method, parse_method
from clearhead.model.loading import load
from clearhead.tables import arrow
from clearhead.tables.columns import ColumnChoice
from clearhead.tables.explain_table import make_explainer
from clearhead.tables.explainer import RowTargets


class BatchExplainer:
    """Turns pyarrow tables of rows into tables of explanations, and holds the model between them.

    `options` are those of `explain`. The columns are those of `explain_table` without `row` and `file`, which a batch
    does not know: name the rows by a column `id`.

    >>> dataset.map_batches(BatchExplainer, batch_format="pyarrow", concurrency=4)     # doctest: +SKIP
    """

    def __init__(
        self,
        model: Any = None,
        method: Any = None,
        targets: RowTargets | None = None,
        columns: ColumnChoice | None = None,
        *,
        device: str | None = None,
        **options: Any,
    ) -> None:
        self.model = load(model, device=device)
        self.spec = parse_method(method or default_method(self.model))
        self.targets = targets or RowTargets()
        self.columns = columns or ColumnChoice()
        # The default of `explain` depends on the number of inputs of a call, and would on the size of batches.
        self.settings = {"check": False, **options}

    def __call__(self, batch: Any) -> Any:
        """Return the explanations of the rows of a batch, in order."""
        explainer, rows = make_explainer(self.model, batch, self.spec, self.columns, self.targets, self.settings)
        records = explainer.explain_rows(rows)
        for record in records:
            del record["row"], record["file"]
        return arrow.make_table(records)

"""Cards of a page that have to be computed first: removal curves."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.explanation import Explanation
    from clearhead.model.model import Model


def removal_card(model: "Model", source: Any, explanations: "Mapping[str, Explanation]") -> str:
    """Compute and draw what hiding and revealing the most relevant features of one input does."""
    # Imported here: torch would slow down every command, --help included.
    from clearhead.perturbation.curves import removal_curves
    from clearhead.views import removal_charts

    hiding = removal_curves(model, source, explanations)
    revealing = removal_curves(model, source, explanations, reveal=True)
    return removal_charts.card(next(iter(explanations.values())), hiding, revealing)

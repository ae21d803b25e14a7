"""Several explanations: a list and a dict that also show themselves in a notebook."""

from typing import Any

from clearhead.explanation import Explanation


class Explanations(list[Explanation]):
    """What `explain` answers for many inputs."""

    def _repr_html_(self) -> str:
        from clearhead.views import notebook

        return notebook.listing(self)


class Comparison(dict[str, Any]):
    """What `compare` answers: by the method as spelled, an explanation, or a list with one per input."""

    def _repr_html_(self) -> str:
        from clearhead.views import notebook

        return notebook.comparison(self)

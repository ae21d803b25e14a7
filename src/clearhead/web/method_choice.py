"""The method that a request names, and errors that come from its options."""

from collections.abc import Iterator
from contextlib import contextmanager

from clearhead.attribution.method import MethodSpec, default_method, resolve_method
from clearhead.errors import BadOption, ClearheadError
from clearhead.model.model import Model
from clearhead.web.job_queue import Interrupted
from clearhead.web.schemas import ExplainRequest
from clearhead.web.similarity_schemas import SimilarityRequest


def resolve_request_method(model: Model, request: ExplainRequest | SimilarityRequest) -> MethodSpec:
    """Return the method that a request names, or the model's own."""
    name = request.method
    # The page always names a method: where that is the model's own, the explanation tells how it was chosen.
    if name == default_method(model) and not request.options:
        name = None
    return resolve_method(model, name, **request.options)


@contextmanager
def explain_option_errors(method: MethodSpec) -> Iterator[None]:
    """Turn internal errors of a method that was given options into BadOption, since these are the likely cause."""
    try:
        yield
    except (ClearheadError, Interrupted):
        raise
    except Exception as error:
        if not method.options:
            raise
        message = f"Invalid options for '{method.method.name}': it failed with these values. Change or omit them."
        raise BadOption(message) from error

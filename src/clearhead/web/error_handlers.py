"""Exception handlers: every error becomes {"error": text}, and user input is not sent back."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from clearhead.errors import BadFile, ClearheadError, TooLong
from clearhead.views.text_spans import escape_hidden
from clearhead.web.job_queue import Interrupted, Overloaded

LOG = logging.getLogger("clearhead.web")
RETRY_AFTER_SECONDS = "2"
MAX_REPORTED_ERRORS = 3
MAX_MESSAGE_CHARACTERS = 500
SHORTEN = "Shorten it, or choose 'First part only' under 'Long texts' (in JSON, overflow: truncate)."


def add_error_handlers(app: FastAPI) -> None:
    """Register the handlers; Starlette picks the one of the most specific class."""
    for error_type, handler in HANDLERS.items():
        app.add_exception_handler(error_type, handler)


def _error_response(status: int, text: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": text}, status, headers)


async def _handle_invalid_input(_: Request, error: ClearheadError) -> JSONResponse:
    return _error_response(422, escape_hidden(str(error)))


async def _handle_damaged_file(_: Request, error: BadFile) -> JSONResponse:
    # The message names a path of the server, which is not for those who only see the page.
    LOG.error("%s", error)
    return _error_response(422, "A file of this server cannot be read: its log says which.")


async def _handle_too_long(_: Request, error: TooLong) -> JSONResponse:
    # The advice of the library names Python arguments; here it names the control of the page and the JSON field.
    return _error_response(422, escape_hidden(f"{error.fact} {SHORTEN}"))


async def _handle_overload(_: Request, error: Exception) -> JSONResponse:
    return _error_response(503, str(error), {"retry-after": RETRY_AFTER_SECONDS})


async def _handle_invalid_body(_: Request, error: RequestValidationError) -> JSONResponse:
    details = error.errors()
    return _error_response(_choose_status(details), escape_hidden(_join_details(details)))


def _choose_status(details: Sequence[Mapping[str, Any]]) -> int:
    return 400 if _is_malformed(details) else 422


def _join_details(details: Sequence[Mapping[str, Any]]) -> str:
    # Cut, because a body can be wrong in thousands of places.
    messages = map(_describe_detail, details[:MAX_REPORTED_ERRORS])
    return "; ".join(messages)[:MAX_MESSAGE_CHARACTERS]


def _is_malformed(details: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the body is not JSON, rather than JSON of the wrong shape."""
    return any(detail["type"] == "json_invalid" for detail in details)


def _describe_detail(detail: Mapping[str, Any]) -> str:
    # The location starts with "body"; from the fourth entry on it may repeat what the user sent.
    field = ".".join(map(str, detail["loc"][1:3]))
    # A message of a check of our own, which may be about several fields.
    message = detail["msg"].removeprefix("Value error, ")
    return ": ".join(filter(None, [field, message]))


async def _handle_http_error(_: Request, error: HTTPException) -> JSONResponse:
    return _error_response(error.status_code, str(error.detail), dict(error.headers or {}))


HANDLERS: dict[type[Exception], Callable[..., Any]] = {
    ClearheadError: _handle_invalid_input,
    TooLong: _handle_too_long,
    BadFile: _handle_damaged_file,
    Overloaded: _handle_overload,
    Interrupted: _handle_overload,
    RequestValidationError: _handle_invalid_body,
    HTTPException: _handle_http_error,
}

"""Explanations as response bodies: JSON for the page, and downloadable files."""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from clearhead.answer_explanation import AnswerExplanation
from clearhead.arrays import Array
from clearhead.check import UNCHECKED
from clearhead.explanation import Explanation
from clearhead.plain import finite
from clearhead.views import html, json_record, static_image
from clearhead.views.answers import list_notes
from clearhead.views.notes import format_coverage
from clearhead.views.scale import Scale, make_scale, scale_pixels
from clearhead.views.text_spans import escape_hidden
from clearhead.views.trust import describe_removal, describe_verdict, format_error, format_unchecked
from clearhead.web.answers import describe_answer
from clearhead.web.cache import Answer

MEDIA_TYPES = {"html": "text/html; charset=utf-8", "png": "image/png", "json": "application/json"}
MAX_LEVEL = 127


def make_explanation_body(answer: Answer) -> dict[str, Any]:
    """Return the record of docs/json.md and the additional fields of docs/page.md."""
    explanation = answer.explanation
    body: dict[str, Any] = finite(json_record.record(explanation, answer.method.text))
    return {
        **body,
        "layers": _list_layers(explanation),
        "classes": answer.classes,
        "size": _find_image_size(explanation),
        "box": _list_box(explanation),
        "pixels": _pack_pixels(explanation),
        **_spell_labels(body),
        "contrast": _list_contrast(answer),
        "scale": describe_scale(make_scale(explanation)),
        "notes": _list_notes(explanation),
        "coverage": format_coverage(explanation),
        "trust": _describe_trust(explanation),
        **_add_to_answer(explanation, body),
    }


def _spell_labels(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the label and the diagnostics, with the characters spelled out by which one label reads as another."""
    diagnostics = body["diagnostics"]
    if diagnostics.get("predicted") is not None:
        diagnostics = {**diagnostics, "predicted": escape_hidden(diagnostics["predicted"])}
    return {"label": escape_hidden(body["label"]), "diagnostics": diagnostics}


def _list_contrast(answer: Answer) -> list[float] | None:
    """Return the probabilities of both classes of a contrast; None if one class is explained."""
    target = answer.explanation.target
    if not answer.classes or not isinstance(target.versus, int):
        return None
    return [answer.classes[target.number], answer.classes[target.versus]]


def _list_notes(explanation: Explanation) -> list[str]:
    """Return the notes without those that the page shows beside the text and the check."""
    shown = [*format_coverage(explanation), format_unchecked(explanation)]
    return [note for note in list_notes(explanation) if note not in shown]


def _describe_trust(explanation: Explanation) -> dict[str, str]:
    """Return in words what the check found, or why there is none, and the error bar."""
    check = explanation.check
    described = {"error": format_error(explanation), "unchecked": explanation.diagnostics.get(UNCHECKED, "")}
    if check is None:
        return {"meaning": "", "evidence": "", **described}
    return {"meaning": describe_verdict(check), "evidence": describe_removal(explanation, check), **described}


def _add_to_answer(explanation: Explanation, body: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a language model with what only the page needs."""
    if not isinstance(explanation, AnswerExplanation):
        return {}
    return {"answer": {**body["answer"], **finite(describe_answer(explanation))}}


def describe_scale(scale: Scale) -> dict[str, Any]:
    """Return what the page's numbers mean, and the relevance of the full colour."""
    plain = {key: getattr(scale, key) for key in ("measure", "full", "total", "signed", "caption")}
    described: dict[str, Any] = finite(plain)
    return described


def _list_layers(explanation: Explanation) -> Any:
    if explanation.layers is None:
        return None
    return finite(explanation.layers.tolist())


def _find_image_size(explanation: Explanation) -> list[int] | None:
    if explanation.image is None:
        return None
    return list(explanation.image.size)


def _list_box(explanation: Explanation) -> list[float] | None:
    if explanation.box is None:
        return None
    return [float(edge) for edge in explanation.box]


def _pack_pixels(explanation: Explanation) -> dict[str, Any] | None:
    if explanation.pixels is None:
        return None
    finest = scale_pixels(explanation, make_scale(explanation))
    return {**quantize_pixels(explanation.pixels), "scale": describe_scale(finest)}


def quantize_pixels(pixels: Array) -> dict[str, Any]:
    """Return pixel relevance as integers −127 … 127, each worth `unit`: a fifth of the bytes of JSON numbers."""
    # JSON has neither NaN nor infinity, and one of them would take the unit with it.
    finite = np.nan_to_num(pixels.astype(np.float64), posinf=0.0, neginf=0.0)
    unit = _find_unit(finite)
    levels = np.rint(finite / unit).astype(np.int8)
    return {"size": list(pixels.shape), "unit": unit, "levels": _encode(levels)}


def _encode(levels: Array) -> str:
    # One byte per pixel in base64: digits and commas would take up to five.
    return base64.b64encode(levels.tobytes()).decode()


def _find_unit(pixels: Array) -> float:
    """Return the relevance of one level, so that the largest pixel gets the largest level."""
    # All zero: any unit will do, but not 0, which the levels are divided by.
    return float(np.abs(pixels).max(initial=0.0)) / MAX_LEVEL or 1.0


def render_file(answer: Answer, file_type: str) -> bytes:
    """Return an explanation as the content of an HTML, PNG or JSON file."""
    if file_type == "png":
        return _draw_png(answer.explanation)
    # Labels of a model may contain lone surrogates, which UTF-8 cannot encode.
    return _render_text(answer, file_type).encode("utf-8", "replace")


def _draw_png(explanation: Explanation) -> bytes:
    return static_image.png(static_image.draw([explanation]))


def _render_text(answer: Answer, file_type: str) -> str:
    if file_type == "json":
        return json_record.line(answer.explanation, answer.method.text)
    return _render_page(answer.explanation)


def _render_page(explanation: Explanation) -> str:
    return html.page([html.card(explanation)], html.make_title([explanation]))

"""Explanations of a picture and a text that a model reads as one sequence: divided into those of each."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from clearhead.arrays import Array
from clearhead.explanation import Explanation
from clearhead.joint_explanation import JointExplanation
from clearhead.model.batches import Item
from clearhead.model.picture_span import PictureSpan


def join_explanations(explanations: Sequence[Explanation], items: Sequence[Item]) -> list[JointExplanation]:
    """Return the explanations of joined inputs, each divided into those of its picture and its text."""
    return [_divide(explanation, item) for explanation, item in zip(explanations, items, strict=True)]


def _divide(explanation: Explanation, item: Item) -> JointExplanation:
    assert item.text_span is not None
    words = np.zeros(len(item.tokens), bool)
    words[slice(*item.text_span)] = True
    picture = _select_picture(explanation, item, ~words)
    return JointExplanation(
        # The check hides words and patches together: it is that of both, and shown once.
        (replace(picture, check=None), _select_text(explanation, words)),
        score=explanation.diagnostics.get("score"),
        probability=explanation.probability,
        diagnostics=explanation.diagnostics,
        # Regions have no grid either, and come first.
        chosen=int(not item.pictures),
        check=explanation.check,
    )


def _select_text(explanation: Explanation, words_T: Array) -> Explanation:
    selected = _select(explanation, words_T)
    if explanation.offsets is None:
        return selected
    return replace(selected, offsets=tuple(explanation.offsets[index] for index in np.flatnonzero(words_T)))


def _select(explanation: Explanation, chosen_T: Array) -> Explanation:
    """Return the explanation of some of the tokens, without the picture."""
    layers = explanation.layers
    return replace(
        explanation,
        tokens=tuple(explanation.tokens[index] for index in np.flatnonzero(chosen_T)),
        relevance=explanation.relevance[chosen_T],
        special=explanation.special[chosen_T],
        layers=None if layers is None else layers[:, chosen_T],
        image=None,
        box=None,
    )


def _select_picture(explanation: Explanation, item: Item, picture_T: Array) -> Explanation:
    whole = replace(explanation, text=None, offsets=None)
    # Regions lie nowhere on a picture: they are shown as tokens.
    if not item.pictures:
        return _select(whole, picture_T)
    # Patches are placed one by one: the model may not have seen all of them.
    leading = _select(whole, picture_T & explanation.special)
    return _place_patches(leading, explanation, item.pictures[0])


def _place_patches(leading: Explanation, explanation: Explanation, span: PictureSpan) -> Explanation:
    """Return the explanation of the class token of a picture with that of its patches."""
    names = [f"patch {row},{column}" for row, column in np.ndindex(*span.grid)]
    return replace(
        leading,
        tokens=(*leading.tokens, *names),
        relevance=_append_patches(leading.relevance, span, explanation.relevance),
        special=np.append(leading.special, np.zeros(len(names), bool)),
        layers=_place_layers(leading.layers, span, explanation.layers),
        grid=span.grid,
        image=span.image,
        box=span.box,
    )


def _place_layers(leading: Array | None, span: PictureSpan, layers: Array | None) -> Array | None:
    if leading is None or layers is None:
        return None
    return np.stack([_append_patches(*pair) for pair in zip(leading, [span] * len(layers), layers, strict=True)])


def _append_patches(leading: Array, span: PictureSpan, relevance_T: Array) -> Array:
    # Patches that the model did not draw have no relevance.
    return np.append(leading, span.place(relevance_T))

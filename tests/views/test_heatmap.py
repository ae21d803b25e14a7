"""Heat maps over images."""

import numpy as np
from helpers.explanations import pictured

from clearhead.views import heatmap, outline


def test_overlay_has_the_original_size_and_leaves_the_rest_unshaded():
    explanation = pictured()
    grey = np.asarray(heatmap.desaturate(explanation)).astype(int)
    drawn = np.asarray(heatmap.overlay(explanation)).astype(int)
    assert drawn.shape == (40, 60, 3)
    changed = np.abs(drawn - grey).sum(-1)
    assert changed[:, :10].max() == changed[:, 50:].max() == 0
    row, column = np.unravel_index(changed.argmax(), changed.shape)
    assert (10 <= row < 20) and (30 <= column < 40)
    assert drawn[15, 35, 0] > drawn[15, 35, 2] and drawn[35, 15, 2] > drawn[35, 15, 0]


def test_patches_are_exact():
    share = heatmap.scale_relevance(pictured(), smooth=False)
    assert np.unique(share[10:20, 30:40]) == [1.0]
    assert share[9, 30] == share[20, 30] == 0
    assert np.isnan(share[:, :10]).all()


def test_opacity_0_is_the_photo_itself():
    explanation = pictured()
    overlay = heatmap.overlay(explanation, opacity=0.0)
    assert overlay.tobytes() == heatmap.original_image(explanation).tobytes()


def test_outline_surrounds_the_top():
    alpha = np.asarray(heatmap.draw_outline(pictured(), top=10))[..., 3]
    assert alpha.any()
    assert alpha[15, 35] == 0 and alpha[2, 55] == 0


def test_the_outline_of_patches_follows_their_borders():
    inside = np.zeros((40, 60), dtype=bool)
    inside[10:20, 30:40] = True
    drawn = heatmap.draw_outline(pictured(), top=5, smooth=False)
    assert drawn.tobytes() == outline.draw_border(inside).tobytes()
    outlined = heatmap.overlay(pictured(), smooth=False, top=5).convert("RGBA")
    plain = heatmap.overlay(pictured(), smooth=False).convert("RGBA")
    plain.alpha_composite(drawn)
    assert outlined.tobytes() == plain.tobytes()

"""Colours: contrast and colour-blind safety."""

from itertools import product

import numpy as np
import pytest

from clearhead.views import color


@pytest.mark.parametrize("theme", [color.LIGHT, color.DARK])
def test_ink_reads_on_every_step(theme):
    for step in range(-color.STEPS, color.STEPS + 1):
        assert color.contrast_ratio(theme.ink, color.background_color(step, theme)) >= 4.5
    assert color.contrast_ratio(theme.faint, theme.paper) >= 4.5
    assert min(color.contrast_ratio(line, theme.paper) for line in (theme.above, theme.below)) >= 3


def test_contrast_is_the_one_of_wcag():
    assert color.contrast_ratio((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert color.contrast_ratio((119, 119, 119), (255, 255, 255)) == pytest.approx(4.48, abs=0.01)


def test_ends_stay_apart_for_the_colour_blind():
    """Machado's matrices for the three kinds of missing cones, on linear light."""
    kinds = {
        "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
        "deutan": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
        "tritan": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
    }
    for theme, matrix in product((color.LIGHT, color.DARK), kinds.values()):
        for step in range(4, color.STEPS + 1):
            ends = [np.array(color.background_color(sign * step, theme)) / 255 for sign in (1, -1)]
            seen = [np.clip(np.array(matrix) @ end**2.2, 0, 1) ** (1 / 2.2) for end in ends]
            assert np.abs(seen[0] - seen[1]).max() > 0.1


def test_steps_follow_sign_and_size():
    assert [color.color_step(value, 2.0) for value in (-2, -1, 0, 0.1, 2, 9, float("nan"))] == [-9, -4, 0, 0, 9, 9, 0]
    assert color.color_step(1.0, 0.0) == 0

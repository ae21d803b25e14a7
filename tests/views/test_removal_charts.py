"""Charts of deletion and insertion curves."""

from helpers.explanations import pictured, review

from clearhead.model.target import Target
from clearhead.perturbation.curves import RemovalCurve
from clearhead.views import removal_charts

OWN = RemovalCurve((0, 2, 4), (0.0, 0.5, 1.0), (0.9, 0.3, 0.1))
RANDOM = RemovalCurve((0, 2, 4), (0.0, 0.5, 1.0), (0.9, 0.6, 0.1), (0.9, 0.5, 0.1), (0.9, 0.7, 0.1), orders=5)


def render(explanation):
    return removal_charts.card(
        explanation, {"att-cat": OWN, "random order": RANDOM}, {"att-cat": OWN, "random order": RANDOM}
    )


def test_two_charts_with_a_line_per_method_and_a_band_of_random_orders():
    page = render(review())
    assert page.count("<svg") == 2 and page.count("<polyline") == 4 and page.count("<polygon") == 2
    assert "the mean of 5 random orders" in page
    assert "tokens hidden" in page and "tokens revealed" in page


def test_the_axes_say_what_was_hidden_and_which_score_is_followed():
    assert "patches hidden" in render(pictured())
    assert ">probability<" in render(review(probability=0.9))
    assert ">score<" in render(review(probability=None))
    assert ">difference of probabilities<" in render(review(target=Target(0, versus=1)))

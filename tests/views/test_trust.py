"""The check and the error bar in words, in every view."""

import json
import re
from dataclasses import replace

import pytest
from helpers.explanations import pictured, review

from clearhead.check import Check
from clearhead.explanation import Comparison, Explanations
from clearhead.model.target import Target
from clearhead.views import html, markdown, notebook, static_image, terminal
from clearhead.views.json_record import line, row
from clearhead.views.notes import format_special
from clearhead.views.trust import (
    describe_removal,
    describe_verdict,
    format_check,
    format_error,
    summarise_checks,
    summarise_methods,
)

CHECK = Check(
    verdict="holds",
    strongest=("never", "joyless"),
    count=2,
    units=10,
    kind="word",
    scale="probability",
    score=0.961,
    hidden=0.12,
    hidden_random=0.91,
    shown=0.94,
    shown_random=0.4,
    p_value=0.05,
    percentile=1.0,
    passes=24,
    seed=0,
)
HIDDEN = "Hiding never, joyless takes negative from 96 % to 12 %; two other words: 91 %."
SHOWN = "Only these: 94 %; two others alone: 40 %."


def test_a_check_is_told_in_plain_words():
    assert describe_removal(review(), CHECK) == f"{HIDDEN} {SHOWN}"
    assert describe_verdict(CHECK) == "the strongest words matter more than the others (p = 0.05)"
    assert "may be chance" in describe_verdict(replace(CHECK, verdict="weak"))
    few = describe_verdict(replace(CHECK, verdict="weak", units=3))
    assert few == "three words are too few to tell whether the strongest matter more"
    assert "do not rely on" in describe_verdict(replace(CHECK, verdict="fails"))
    assert format_check(review()) == ""


def test_nothing_that_changes_the_answer_is_told():
    still = replace(CHECK, verdict="fails", hidden=0.96, hidden_random=0.961, shown=0.962, shown_random=0.96)
    assert describe_verdict(still) == "nothing that was hidden changed the answer"
    assert "leaves negative at 96 %" in describe_removal(review(), still)


def test_many_words_are_clipped_and_one_is_singular():
    many = replace(CHECK, strongest=tuple(f"word{index}" for index in range(8)), count=8)
    assert "Hiding word0, word1, word2, word3, word4, three more takes" in describe_removal(review(), many)
    assert "Hiding a, “,” takes" in describe_removal(review(), replace(CHECK, strongest=("a", ",")))
    single = describe_removal(review(), replace(CHECK, strongest=("never",), count=1))
    assert "one other word: 91 %. Only this: 94 %; one other alone: 40 %." in single


def test_patches_are_counted():
    both = describe_removal(pictured(), replace(CHECK, strongest=("cat", "patch 0,1"), count=2, kind="word or patch"))
    assert "two other words and patches:" in both
    removal = describe_removal(pictured(), replace(CHECK, strongest=(), count=29, kind="patch"))
    assert removal.startswith("Hiding the 29 strongest patches takes cat from 96 % to 12 %; 29 other patches: 91 %.")


@pytest.mark.parametrize(
    ("scale", "versus", "text"),
    [
        ("log-prob", None, "takes log p of negative from 0.961 to 0.12"),
        ("value", None, "takes negative from 0.961 to 0.12"),
        ("probability", 1, "takes negative from +96 points to +12 points"),
    ],
)
def test_scores_are_in_their_own_unit(scale, versus, text):
    explanation = review(target=Target(0, versus=versus))
    assert text in describe_removal(explanation, replace(CHECK, scale=scale))


def test_every_view_shows_the_check():
    explanation = review(check=CHECK)
    drawn = " ".join(re.findall(r">([^<]+)</text>", static_image.svg([explanation])))
    views = [
        html.card(explanation),
        html.brief_card(explanation),
        html.methods({"att-cat": explanation}),
        html.classes([explanation]),
        notebook.fragment(explanation),
        Explanations([explanation] * 5)._repr_html_(),
        Comparison({"att-cat": explanation})._repr_html_(),
        markdown.section(explanation),
        terminal.capture(terminal.methods({"att-cat": explanation})),
        terminal.render(explanation),
        drawn,
    ]
    for view in views:
        text = re.sub(r"<[^>]+>", "", view.replace("&nbsp;", " "))
        assert "Check holds: the strongest words matter more" in text
        assert HIDDEN in text
        assert SHOWN in text


def test_every_view_says_why_there_is_no_check():
    explanation = review(diagnostics={"unchecked": "There is a single word \x1b[31m."})
    drawn = " ".join(re.findall(r">([^<]+)</text>", static_image.svg([explanation])))
    for view in [
        html.card(explanation),
        notebook.fragment(explanation),
        markdown.section(explanation),
        terminal.render(explanation),
        drawn,
    ]:
        assert "Not checked: There is a single word" in view and "\x1b[31m" not in view
    # Who switches the check off needs no reason.
    assert "Not checked" not in terminal.render(review())


def test_compared_methods_show_their_error_bars_and_agreement():
    explanation = review(diagnostics={"rounding_error": 1e-4, "agreement": 0.716})
    compared = {"att-cat": explanation, "cat": review()}
    for view in [
        html.methods(compared),
        Comparison(compared)._repr_html_(),
        terminal.capture(terminal.methods(compared)),
    ]:
        text = " ".join(view.replace("&nbsp;", " ").split())
        assert text.count("Error bar: less than 0.1 % of the strongest word (rounding)") == 1
        assert text.count("agreement with other methods 0.72") == 1


def test_special_tokens_are_those_of_the_method_that_auto_chose():
    diagnostics = {"auto": "gae before cat", "auto_scores": {"gae": 0.4, "cat": 0.2}}
    assert format_special(review(method="auto", diagnostics=diagnostics)).endswith("as gae defines it.")
    assert format_special(review()).endswith("as att-cat defines it.")


def test_photos_show_the_check():
    explanation = pictured(size=(300, 200), check=replace(CHECK, strongest=(), kind="patch"))
    assert "strongest patches matter more" in html.card(explanation)
    assert "strongest patches matter more" in terminal.render(explanation)
    assert "strongest patches" in static_image.svg([explanation])
    assert static_image.draw([explanation]).height > static_image.draw([replace(explanation, check=None)]).height


def test_records_hold_the_check():
    plain = json.loads(line(review(check=CHECK)))
    assert plain["check"]["verdict"] == "holds"
    assert plain["check"]["caption"] == format_check(review(check=CHECK))
    assert json.loads(line(review()))["check"] is None
    assert json.loads(row(review(check=CHECK))["check"])["count"] == 2


def test_the_error_bar_is_one_line():
    diagnostics = {"rounding_error": 2e-6, "sampling_error": 0.13, "agreement": 0.716, "conservation_gap": 1e-7}
    assert format_error(review(diagnostics=diagnostics)) == (
        "Wide error bar: ±13 % of the strongest word (sampling) · agreement with other methods 0.72"
    )
    assert format_error(review(diagnostics={"agreement": -0.3})) == "agreement with other methods −0.30"
    small = format_error(review(diagnostics={"rounding_error": 1e-6}))
    assert small == "Error bar: less than 0.1 % of the strongest word (rounding)"
    effect = {"unit": "logit", "base": 0.0, "prediction": 1.0}
    assert format_error(review(diagnostics={"completeness_gap": 0.25, "effect": effect})) == "sum off by 0.25 logits"
    assert format_error(review(diagnostics={"completeness_gap": 0.25})) == ""
    marked = format_error(review(diagnostics={"rounding_error": 0.4, "needs_float64": True}))
    assert marked == "Wide error bar: ±40 % of the strongest word (rounding) · explain in float64 for reliable digits"
    assert "conserved" not in html.card(review())


def test_lists_say_the_share_that_holds():
    failed = review(check=replace(CHECK, verdict="fails"))
    explanations = [review(check=CHECK), review(check=CHECK), failed, review()]
    summary = "Check: 2 of 3 explanations hold (67 %), 0 weak, 1 failed."
    assert summarise_checks(explanations) == summary
    assert summarise_checks([review(), review(check=CHECK)]) == ""
    for view in (html.cards(explanations)[0], notebook.listing(explanations), markdown.document(explanations)):
        assert summary in view.replace("\\", "")
    rows = [{"a": review(check=CHECK), "b": failed}] * 2
    assert summarise_methods(rows).splitlines() == [
        "a  Check: 2 of 2 explanations hold (100 %), 0 weak, 0 failed.",
        "b  Check: 0 of 2 explanations hold (0 %), 0 weak, 2 failed.",
    ]

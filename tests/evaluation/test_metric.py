"""The registry of metrics and their options."""

import pytest
from helpers import tiny_models
from helpers.explained_examples import TEXTS, cases_of

import clearhead
from clearhead.data.task import Example
from clearhead.errors import BadInput, BadOption, UnknownName, UnsupportedModel
from clearhead.evaluation import faithfulness
from clearhead.evaluation.metric import ExplainedExample, Metric, parse_metric


def test_metrics_are_listed_with_their_papers():
    listed = clearhead.metrics()
    names = (
        "positive-perturbation negative-perturbation segmentation token-f1 hiding revealing token-overlap aopc lodds "
        "kendall precision-at-k comprehensiveness sufficiency randomisation planted mosaic "
        "log-prob-drop lds log-prob-hiding log-prob-revealing aopc-per-step soft-sufficiency soft-comprehensiveness "
        "evidence-rank recovery first-token-share alignment-error-rate"
    )
    assert set(listed) == set(names.split())
    for name, metric in listed.items():
        assert (
            isinstance(metric, Metric)
            and metric.paper
            and metric.summary
            and metric.better in ("higher", "lower", "neither")
        ), name


def test_options_are_spelled_as_for_methods():
    assert parse_metric("aopc:replacement=pad,steps=9").options == {"replacement": "pad", "steps": 9}
    assert parse_metric(("aopc", {"steps": 9})).text == "aopc:steps=9"
    assert parse_metric("aopc:target=label").targets == ("label",)
    with pytest.raises(UnknownName, match="Did you mean 'aopc'"):
        parse_metric("aopcs")
    with pytest.raises(BadOption, match="steps"):
        parse_metric("aopc:stpes=9")
    with pytest.raises(BadOption, match="prediction"):
        _ = parse_metric("aopc:target=class").targets
    with pytest.raises(BadOption, match="'aopc:steps=5,steps=6' gives an option twice"):
        parse_metric("aopc:steps=5,steps=6")
    with pytest.raises(BadOption, match="name with its options"):
        parse_metric(("aopc", None))


def test_a_summary_says_what_the_chosen_options_change():
    plain = parse_metric("kendall").summary
    assert parse_metric("kendall:order=rank").summary == plain == clearhead.metrics()["kendall"].summary
    by_index = parse_metric("kendall:order=index").summary
    assert by_index.startswith(f"{plain} `order=") and "token positions in order" in by_index
    # Of the options of a metric only those that were chosen are explained.
    assert "true class" in parse_metric("negative-perturbation:target=label").summary
    assert "true class" not in parse_metric("lodds:steps=9").summary


@pytest.mark.parametrize("name", ["aopc", "lodds", "sufficiency", "hiding", "negative-perturbation"])
def test_the_former_name_of_an_option_is_understood(name):
    assert parse_metric(f"{name}:absent=mask").options == {"replacement": "mask"}
    with pytest.raises(BadOption, match="'absent' is an older name of the option 'replacement'"):
        parse_metric(f"{name}:absent=mask,replacement=pad")


@pytest.mark.parametrize(
    "name",
    [
        "aopc:steps=0",
        "hiding:against=me",
        "kendall:order=x",
        "token-overlap:k=0",
        "randomisation:correlation=x",
        "comprehensiveness:bins=5/1",
        ("comprehensiveness", {"bins": (1, float("nan"), 50)}),
        ("sufficiency", {"bins": (1, 10**400)}),
        ("positive-perturbation", {"start": 10**400}),
        ("positive-perturbation", {"start": float("inf")}),
        "positive-perturbation:start=0.5",
        "precision-at-k:k=0",
    ],
)
def test_bad_values_of_options(bert, name):
    case = cases_of(bert, TEXTS[:1])
    option = name.partition(":")[2].partition("=")[0] if isinstance(name, str) else next(iter(name[1]))
    with pytest.raises(BadOption, match=option):
        parse_metric(name).measure(bert, case)


def test_a_label_the_model_does_not_know(bert):
    case = cases_of(bert, TEXTS[:1], labels=["lovely"])
    with pytest.raises(BadInput, match=r"'0' is labelled 'lovely'.*No label"):
        parse_metric("hiding").measure(bert, case)


def test_lodds_needs_a_padding_token(bert, monkeypatch):
    monkeypatch.setattr(faithfulness, "token_id", lambda *_: None)
    with pytest.raises(UnsupportedModel, match="replacement=attention"):
        parse_metric("lodds").measure(bert, cases_of(bert, TEXTS[:1]))
    assert len(parse_metric("lodds:replacement=attention").measure(bert, cases_of(bert, TEXTS[:1]))) == 1


def test_accuracy_needs_classes():
    model = tiny_models.answering_bert()
    with pytest.raises(UnsupportedModel, match="span"):
        parse_metric("hiding").measure(model, [ExplainedExample(Example("x", ("is it good", "a film")), {})])

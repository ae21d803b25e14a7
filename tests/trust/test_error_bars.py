"""Error bars cover what is computed without rounding, and mark what rounding has spoilt."""

import numpy as np
import pytest
import torch
import transformers
from helpers.language_models import make_encoder_decoder, make_tokenizer
from helpers.precision import require_half_precision
from helpers.tiny_models import bert, network
from helpers.tiny_tokenizers import word_piece_tokenizer
from scipy.stats import spearmanr

import clearhead
from clearhead.api import compare
from clearhead.attribution.batch import explain_batch
from clearhead.attribution.method import parse_method
from clearhead.engine import retrace
from clearhead.errors import NotFinite
from clearhead.model import zoo
from clearhead.model.inputs import as_inputs
from clearhead.model.placement import with_perturbed_weights, with_precision
from clearhead.trust import rounding
from clearhead.trust.error_bars import explain_with_error_bars
from clearhead.trust.relevances import list_relevances, relative_difference
from clearhead.views.trust import format_error

STABLE = ["rollout", "gae", "att-cat", "cat", "gradient", "gradient-x-input", "attn-lrp", "cp-lrp", "balanced-cat"]
SPOILT_BY_FLOAT32 = [
    "but like most rabbits , it seems to lack substance .",
    "a film of precious increments artfully camouflaged as everyday activities .",
]
LOSSY = ["lrp", "partial-lrp", "trans-att"]
TEXTS = {
    "clearhead/sst2-minilm": [
        "a joyless , tedious film that never finds its heart .",
        "warm , funny and quietly moving",
        "the plot is thin but the acting is superb",
        "not a bad film , just a forgettable one",
        "it 's slow -- very , very slow .",
        "a gorgeous , witty , seductive movie .",
        "neither funny nor scary , and twice as long as it should be",
        "one of the best films of the year",
        "i fell asleep",
        "a script that no actor could save",
        "sharp dialogue , wonderful music and a clever ending",
        "hard to like , harder to forget",
    ],
    "clearhead/agnews-minilm": [
        "Oil prices rise as supply fears return",
        "Rebels and government troops signed a truce after weeks of fighting in the north.",
        "The striker scored twice in the final minutes to win the cup",
        "New chip promises faster phones with longer battery life",
        "Shares of the bank fell after it cut its forecast",
        "The president met ministers to discuss the elections",
        "Astronomers find a planet that circles two suns",
        "Coach resigns after a fifth defeat in a row",
        "Software maker sues rival over patents",
        "Peace talks stall as fighting goes on",
        "Central bank raises rates for the third time",
        "Sprinter breaks a record that stood for ten years",
    ],
}


def explain_rows(model, inputs, methods, *, precision=None):
    """Return for each input its explanations with error bars."""
    batch = as_inputs(model, inputs)

    def explain(specs):
        return explain_batch(model, batch, [None] * len(batch), specs), None

    return explain_with_error_bars(model, list(map(parse_method, methods)), explain, precision=precision)[0]


def compare_with_float64(model, inputs, methods, **options):
    """Return for each input and method the explanation and how far it is from that in float64."""
    exact = compare(with_precision(model, "float64"), inputs, methods, check=False)
    for row, explanations in enumerate(explain_rows(model, inputs, methods, **options)):
        for method, explanation in zip(methods, explanations, strict=True):
            yield explanation, relative_difference(explanation, exact[method][row])


def is_covered(explanation, error):
    return error <= explanation.diagnostics["rounding_error"]


@pytest.fixture(autouse=True)
def products_in_float32():
    """Multiply in float32 whatever other tests have asked torch for: bars are wider with products in tf32."""
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("name", TEXTS)
def test_the_bar_covers_the_value_without_rounding(name):
    pairs = list(compare_with_float64(clearhead.load(name), TEXTS[name], [*STABLE, *LOSSY]))
    assert np.mean([is_covered(*pair) for pair in pairs]) >= 0.95
    assert all(explanation.diagnostics["rounding_error"] <= 1e-4 for explanation, _ in pairs)


def test_the_bar_covers_images():
    model = clearhead.load("clearhead/pets-vit")
    pairs = list(compare_with_float64(model, [zoo.HERE / "examples" / "chelsea.jpg"], ["att-cat", "attn-lrp", "lrp"]))
    assert all(is_covered(*pair) for pair in pairs)


def test_methods_that_lose_digits_are_computed_in_float64():
    model = clearhead.load()
    (explanations,) = explain_rows(model, TEXTS[model.name][0], ["att-cat", *LOSSY])
    precisions = [explanation.diagnostics["precision"] for explanation in explanations]
    assert precisions == ["float32", "float64", "float64", "float64"]
    # One trace serves them all, for the target of the model itself.
    assert len({explanation.label for explanation in explanations}) == 1


def test_one_float64_trace_serves_all_methods_that_lose_digits(monkeypatch):
    passes = []
    run_forward = retrace.run_forward
    monkeypatch.setattr(retrace, "run_forward", lambda *args: passes.append(args) or run_forward(*args))
    explain_rows(bert(), "a goodly film", ["att-cat", *LOSSY])
    assert not passes
    explain_rows(with_precision(bert(), "float32"), "a goodly film", ["att-cat", *LOSSY])
    assert len(passes) == 1


def test_a_second_evaluation_marks_what_float32_spoils():
    model = clearhead.load()
    pairs = list(compare_with_float64(model, SPOILT_BY_FLOAT32, ["lrp"], precision="float32"))
    for explanation, error in pairs:
        assert explanation.diagnostics["precision"] == "float32" and is_covered(explanation, error)
        assert explanation.diagnostics["needs_float64"]
    assert max(error for _, error in pairs) > rounding.LARGE_ERROR


def test_known_cases_are_right_by_default():
    model = clearhead.load()
    for explanation, error in compare_with_float64(model, SPOILT_BY_FLOAT32, ["lrp"]):
        assert error <= explanation.diagnostics["rounding_error"] <= 1e-5
        assert "needs_float64" not in explanation.diagnostics


def test_a_second_evaluation_covers():
    model = clearhead.load()
    pairs = list(compare_with_float64(model, TEXTS[model.name], LOSSY, precision="float32"))
    assert np.mean([is_covered(*pair) for pair in pairs]) >= 0.95


def test_networks_that_normalise_in_float32_are_no_more_exact_in_float64():
    llama = clearhead.load(network("llama"), word_piece_tokenizer())
    exact = clearhead.explain(llama, "a warm film", "attn-lrp", precision="float64")
    assert exact.diagnostics["rounding_error"] == rounding.STABLE_BOUNDS["float32"]
    lossy = clearhead.explain(llama, "a warm film", "lrp")
    assert lossy.diagnostics["rounding_error"] >= rounding.STABLE_BOUNDS["float32"]


def test_norms_in_float32_are_found_whatever_they_are_called():
    t5 = clearhead.load(make_encoder_decoder("t5"), make_tokenizer())
    explanation = clearhead.explain(t5, "the river is", "attn-lrp", answer="long", precision="float64")
    assert explanation.diagnostics["rounding_error"] == rounding.STABLE_BOUNDS["float32"]
    config = transformers.DebertaConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=20)
    assert rounding.has_float32_norms(clearhead.load(transformers.DebertaForSequenceClassification(config)))
    assert not rounding.has_float32_norms(clearhead.load())


def test_without_error_bars_methods_that_lose_digits_say_so():
    unchecked = clearhead.explain(clearhead.load(), "a warm film", "lrp", check=False)
    assert "rounding_error" not in unchecked.diagnostics
    assert "may lose digits in float32" in format_error(unchecked)
    assert "lose digits" not in format_error(clearhead.explain(clearhead.load(), "a warm film", "lrp"))
    assert "lose digits" not in format_error(clearhead.explain(clearhead.load(), "a warm film", "cat", check=False))


def test_the_check_switches_error_bars():
    text = TEXTS["clearhead/sst2-minilm"][0]
    checked = clearhead.compare(clearhead.load(), text, ["lrp", "att-cat"])
    assert checked["lrp"].diagnostics["precision"] == "float64" and checked["lrp"].check is not None
    assert checked["att-cat"].diagnostics["rounding_error"] == rounding.STABLE_BOUNDS["float32"]
    plain = clearhead.compare(clearhead.load(), text, ["lrp", "att-cat"], check=False)
    assert plain["lrp"].diagnostics["precision"] == "float32"
    assert not {"rounding_error", "agreement"} & plain["att-cat"].diagnostics.keys()


def test_a_network_that_fails_in_float64_is_evaluated_twice(monkeypatch):
    def fail(*args):
        raise NotFinite("float64 overflows here")

    model = with_precision(bert(), "float32")
    monkeypatch.setattr(retrace, "with_precision", fail)
    (explanation,) = explain_rows(model, "a goodly film", ["lrp"])[0]
    assert explanation.diagnostics["precision"] == "float32"
    assert explanation.diagnostics["rounding_error"] >= rounding.STABLE_BOUNDS["float32"]


def test_huge_models_are_not_copied(monkeypatch):
    model = with_precision(bert(), "float32")
    assert rounding.affords_float64(model)
    monkeypatch.setattr(rounding, "MAX_COPY_BYTES", 10)
    assert not rounding.affords_float64(model)


def test_perturbed_weights_differ_by_a_rounding_error_and_share_the_large_ones():
    model = with_precision(bert(), "float32")
    perturbed = with_perturbed_weights(model, 2.0**-23)
    pairs = zip(model.network.parameters(), perturbed.network.parameters(), strict=True)
    for weight, changed in pairs:
        if weight.dim() > 1:
            assert changed is weight
        else:
            torch.testing.assert_close(changed, weight, rtol=2.0**-22, atol=0)
    norm = "bert.encoder.layer.0.output.LayerNorm.weight"
    assert not torch.equal(model.network.get_parameter(norm), perturbed.network.get_parameter(norm))


def test_agreement_is_the_mean_rank_correlation_with_the_others():
    (explanations,) = explain_rows(bert(), "a goodly film with no plot", ["att-cat", "gradient", "cat", "random"])
    first, second, third, _ = map(list_relevances, explanations)
    expected = (spearmanr(first, second).statistic + spearmanr(first, third).statistic) / 2
    assert explanations[0].diagnostics["agreement"] == pytest.approx(expected)
    (alone,) = explain_rows(bert(), "a goodly film", ["att-cat"])[0]
    assert "agreement" not in alone.diagnostics


def test_the_completeness_error_is_relative():
    (explanation,) = explain_rows(bert(), "a goodly film", ["integrated-gradients:steps=1"])[0]
    diagnostics = explanation.diagnostics
    effect = abs(diagnostics["effect"]["prediction"] - diagnostics["effect"]["base"])
    scale = max(effect, np.abs(explanation.relevance).sum())
    assert diagnostics["completeness_error"] == pytest.approx(diagnostics["completeness_gap"] / scale)
    (other,) = explain_rows(bert(), "a goodly film", ["balanced-cat"])[0]
    assert "completeness_error" not in other.diagnostics


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_bar_covers_half_precision(dtype):
    require_half_precision(dtype)
    model = clearhead.load(dtype=dtype)
    pairs = list(compare_with_float64(model, TEXTS["clearhead/sst2-minilm"][:6], ["att-cat", "attn-lrp", "cat"]))
    assert np.mean([is_covered(*pair) for pair in pairs]) >= 0.95


@pytest.mark.parametrize("product_type", ["tf32", "bfloat16"])
def test_narrow_products_widen_the_bar(monkeypatch, product_type):
    model = with_precision(bert(), "float32")
    monkeypatch.setattr(rounding, "find_product_type", lambda _: product_type)
    stable, lossy = explain_rows(model, "a goodly film", ["att-cat", "lrp"])[0]
    assert stable.diagnostics["rounding_error"] == rounding.STABLE_BOUNDS[product_type]
    assert lossy.diagnostics["rounding_error"] == rounding.LOSSY_FLOAT64_BOUND


def test_every_method_that_reads_relevance_loses_digits():
    declared = {name for name, method in clearhead.methods().items() if method.loses_digits}
    # What auto chooses may be one of them.
    assert declared == {*LOSSY, "auto"}

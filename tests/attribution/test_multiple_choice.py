"""Multiple choice: a context and its choices as one example."""

import numpy as np
import pytest
import torch
import transformers as hf
from helpers.tiny_heads import CHOICES as CHOOSERS
from helpers.tiny_models import network, tensors
from helpers.tiny_tokenizers import plot_tokenizer

import clearhead
from clearhead import Target
from clearhead.errors import BadInput, BadOption

CONTEXT = "a film with no plot is it"
CHOICES = ["really good", "bad", "or a fine film"]
QUESTION = (CONTEXT, CHOICES)


def chooser():
    return clearhead.load(network("bert", network_class=hf.BertForMultipleChoice), plot_tokenizer())


def own_logits(model):
    """Return the logits of Transformers for all choices together, in one call."""
    encoded = model.processor([CONTEXT] * 3, CHOICES, padding=True, return_tensors="pt")
    return model.network.network(**{name: tensor[None] for name, tensor in encoded.items()}).logits[0].detach()


def test_scores_and_probabilities_are_the_models_own():
    model = chooser()
    expected = own_logits(model)
    for index in range(3):
        explanation = clearhead.explain(model, QUESTION, "gradient", index, check=False)
        assert explanation.diagnostics["score"] == pytest.approx(float(expected[index]), abs=1e-10)
        assert explanation.probability == pytest.approx(float(expected.softmax(-1)[index]), abs=1e-10)
        assert explanation.label == CHOICES[index]
        assert explanation.text == (CONTEXT, CHOICES[index])


def test_the_winner_is_explained_and_all_choices_are_listed():
    model = chooser()
    expected = own_logits(model)
    explanation = clearhead.explain(model, QUESTION)
    best = int(expected.argmax())
    assert explanation.target == best
    assert explanation.diagnostics["predicted"] == CHOICES[best]
    assert [choice["text"] for choice in explanation.diagnostics["choices"]] == CHOICES
    assert explanation.check is not None


@pytest.mark.parametrize("family", CHOOSERS)
@pytest.mark.parametrize("method", ["lrp", "attn-lrp", "gae", "att-cat"])
def test_every_family(family, method):
    model = clearhead.load(network(family, network_class=CHOOSERS[family]))
    batch = tensors(family)
    together = clearhead.explain(model, batch, method, check=False)
    expected = model.network.network(**{name: tensor[:, None] for name, tensor in batch.items()}).logits.detach()
    for row, explanation in enumerate(together):
        assert explanation.diagnostics["score"] == pytest.approx(float(expected[row]), abs=1e-9)
        if method == "lrp":
            gap, dropped = (explanation.diagnostics[name] for name in ("conservation_gap", "dropped"))
            assert abs(gap - dropped) <= 1e-9 * (1 + dropped)


def test_a_contrast_adds_the_pairs_with_their_signs():
    model = chooser()
    first, second = (clearhead.explain(model, QUESTION, "attn-lrp", index, check=False) for index in (0, 2))
    both = clearhead.explain(model, QUESTION, "attn-lrp", Target("really good", versus=2), check=False)
    assert both.text == (CONTEXT, CHOICES[0], CHOICES[2])
    assert both.label == "really good rather than or a fine film"
    assert both.relevance.sum() == pytest.approx(first.relevance.sum() - second.relevance.sum())
    shared = 1 + len(CONTEXT.split()) + 1
    np.testing.assert_allclose(both.relevance[:shared], first.relevance[:shared] - second.relevance[:shared])
    words = {word.text: word.relevance for word in both.words() if word.segment == 2}
    assert list(words) == CHOICES[2].split()
    assert both.diagnostics["score"] == pytest.approx(
        first.diagnostics["score"] - second.diagnostics["score"], abs=1e-12
    )
    assert "one by one" in both.diagnostics["unchecked"]


def test_the_contrast_with_all_others_is_their_mean():
    model = chooser()
    rows = [clearhead.explain(model, QUESTION, "cp-lrp", index, check=False) for index in range(3)]
    explanation = clearhead.explain(model, QUESTION, "cp-lrp", Target(1, versus="others"), check=False)
    sums = [row.relevance.sum() for row in rows]
    assert explanation.relevance.sum() == pytest.approx(sums[1] - (sums[0] + sums[2]) / 2)
    assert explanation.label == "bad rather than the others"
    assert explanation.text == (CONTEXT, "bad", "really good", "or a fine film")


def test_batched_is_single():
    model = chooser()
    other = ("it is a plot", ["good", "bad"])
    together = clearhead.explain(model, [QUESTION, other], "attn-lrp", ["bad", 0], check=False)
    for question, target, batched in zip([QUESTION, other], ["bad", 0], together, strict=True):
        single = clearhead.explain(model, question, "attn-lrp", target, check=False)
        np.testing.assert_allclose(batched.relevance, single.relevance, rtol=0, atol=1e-10)
        assert batched.label == single.label


def test_contrasts_can_be_saved_and_shown(tmp_path):
    from clearhead.views import html, terminal

    explanation = clearhead.explain(chooser(), QUESTION, target=Target(0, versus=1))
    again = clearhead.read(explanation.save(tmp_path / "choice.json"))
    assert again.text == explanation.text and again.label == explanation.label
    for rendered in (terminal.render(again), html.card(again)):
        assert "rather than" in rendered and "bad" in rendered
    assert clearhead.explain(chooser(), [QUESTION]).to_records()[0]["second"] in CHOICES


@pytest.mark.parametrize(
    ("question", "options", "error", "message"),
    [
        ((CONTEXT, ["good"]), {}, BadInput, "has 1 choices"),
        ((CONTEXT, ["good", 3]), {}, BadInput, "are texts"),
        ([QUESTION, "a film"], {}, BadInput, "no context with choices"),
        (QUESTION, {"target": "plot"}, BadInput, "No label is called 'plot'"),
        (QUESTION, {"target": 3}, BadInput, "classes 0 … 2"),
        (QUESTION, {"target": Target(1, versus="bad")}, BadInput, "with itself"),
        (QUESTION, {"target": Target(span=(0, 1))}, BadInput, "span"),
        (QUESTION, {"method": "gae", "target": Target(1, versus=0)}, BadOption, "gae has no sign"),
        (QUESTION, {"focus": "film"}, BadOption, "no language model"),
    ],
)
def test_mistakes(question, options, error, message):
    with pytest.raises(clearhead.ClearheadError, match=message) as raised:
        clearhead.explain(chooser(), question, **options)
    assert isinstance(raised.value, error) or "label" in message


def test_the_network_is_left_as_it_was():
    net = network("bert", network_class=hf.BertForMultipleChoice)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    clearhead.explain(clearhead.load(net, plot_tokenizer()), QUESTION)
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert not net.training

"""Modules of one's own around a Transformer."""

import numpy as np
import pytest
import torch
from helpers.custom_modules import Convolution, OtherNames, OwnClassifier, OwnImageClassifier
from helpers.tiny_models import image_processor
from helpers.tiny_tokenizers import plot_tokenizer
from PIL import Image
from torch import nn

import clearhead
from clearhead import UnsupportedModel
from clearhead.errors import BadOption

TEXT = "a fine film with no plot"
FORMS = ("tensor", "tuple", "dict", "output", "probabilities")


def photo():
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 48, 3), dtype=np.uint8))


@pytest.mark.parametrize("form", FORMS)
def test_the_head_is_read_in_whatever_form_it_answers(form):
    module = OwnClassifier(form).eval()
    tokenizer = plot_tokenizer()
    explanation = clearhead.explain(clearhead.load(module, tokenizer, labels=list("abcd")), TEXT, "occlusion")
    tensors = tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        plain = OwnClassifier.forward(module, tensors["input_ids"], tensors["attention_mask"])
    values = {"tuple": lambda: plain[1], "dict": lambda: plain["logits"], "output": lambda: plain.logits}
    row = values.get(form, lambda: plain)()[0]
    expected = row if form == "probabilities" else row.softmax(-1)
    assert explanation.probability == pytest.approx(float(expected.max()), abs=1e-6)
    assert explanation.label == "abcd"[int(expected.argmax())]


@pytest.mark.parametrize("method", [None, "trans-att", "integrated-gradients", "lime"])
def test_methods_work_on_a_body_with_another_head(method):
    model = clearhead.load(OwnClassifier(), plot_tokenizer())
    explanation = clearhead.explain(model, TEXT, method)
    assert len(explanation.relevance) == 8
    assert np.abs(explanation.relevance).sum() > 0
    assert model.labels == ["LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3"]


def test_the_result_is_that_of_the_stock_model_with_the_same_weights():
    own = OwnClassifier(classes=2)

    class Stock(clearhead_stock()):
        pass

    stock = Stock(own.body.config)
    stock.bert.load_state_dict(own.body.state_dict(), strict=False)
    stock.head.load_state_dict(own.head.state_dict())
    first = clearhead.explain(clearhead.load(own, plot_tokenizer()), TEXT)
    second = clearhead.explain(clearhead.load(stock.eval(), plot_tokenizer()), TEXT)
    assert first.relevance == pytest.approx(second.relevance, abs=1e-6)


def clearhead_stock():
    """Return a class of Transformers with the same forward pass."""
    import transformers

    class Stock(transformers.BertPreTrainedModel):
        def __init__(self, config):
            super().__init__(config)
            self.bert = transformers.BertModel(config)
            self.head = nn.Linear(32, 2)
            self.post_init()

        def forward(self, input_ids, attention_mask):
            return (self.head(self.bert(input_ids, attention_mask).last_hidden_state[:, 0]),)

    return Stock


def test_arguments_with_other_names_and_one_number_per_input():
    model = clearhead.load(OtherNames(), plot_tokenizer())
    assert model.problem == "regression"
    assert model.network.arguments == {"input_ids": "ids", "attention_mask": "mask", "token_type_ids": "segment"}
    explained = clearhead.explain(model, [(TEXT, "it is bad"), (TEXT, "good")])
    assert [len(explanation.tokens) for explanation in explained] == [12, 10]


def test_an_image_module():
    model = clearhead.load(OwnImageClassifier(), image_processor(), labels=["cat", "dog", "cow"])
    explanation = clearhead.explain(model, photo(), "trans-att")
    assert explanation.grid == (4, 4)
    assert explanation.label in ("cat", "dog", "cow")


def test_what_is_no_transformer_is_explained_by_hiding():
    model = clearhead.load(Convolution(), image_processor())
    explanation = clearhead.explain(model, photo(), "occlusion")
    assert explanation.grid == (8, 8)
    assert np.abs(explanation.relevance).sum() > 0
    with pytest.raises(UnsupportedModel, match="No attention maps were found"):
        clearhead.explain(model, photo())


def test_the_module_is_left_as_it_was():
    module = OwnClassifier().train()
    before = module.body.config.to_dict()
    clearhead.explain(clearhead.load(module, plot_tokenizer(), labels=list("abcd")), TEXT)
    assert module.training
    assert module.body.config.to_dict() == before
    assert all(weight.requires_grad for weight in module.parameters())


def test_an_output_without_logits_is_refused():
    class States(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = OwnClassifier().body

        def forward(self, input_ids):
            return self.body(input_ids).last_hidden_state

    with pytest.raises(UnsupportedModel, match=r"tensors of shape \(1, 3, 32\): return the logits"):
        clearhead.load(States(), plot_tokenizer())


@pytest.mark.parametrize("labels", [["a"], list("abcde"), "abcd"])
def test_labels_that_do_not_fit_are_refused(labels):
    with pytest.raises(BadOption, match="4 classes"):
        clearhead.load(OwnClassifier(), plot_tokenizer(), labels=labels)

"""clearhead.compare with several models: names, the common method, and how far the models agree."""

import numpy as np
import pytest
from helpers.pictures import picture
from helpers.tiny_models import image_model, model, text_model
from helpers.tiny_tokenizers import letter_tokenizer

import clearhead
from clearhead.drift.side_by_side import MODEL_AGREEMENT, note_agreement, resolve_methods
from clearhead.errors import BadInput, BadOption
from clearhead.explanation import ModelComparison
from clearhead.model.model import Model
from clearhead.perturbation.ranking import spearman

TEXT = "a good film never bad"


@pytest.fixture(scope="module")
def models():
    return {"old": text_model(seed=1), "new": text_model(seed=2)}


def test_each_model_has_the_explanations_that_it_has_alone(models):
    compared = clearhead.compare(models, TEXT, ["cat", "rollout"], target=0, check=False)
    assert isinstance(compared, ModelComparison)
    assert list(compared) == list(models)
    for name, by_method in compared.items():
        assert list(by_method) == ["cat", "rollout"]
        alone = clearhead.explain(models[name], TEXT, "cat", 0, check=False)
        # Float64, but with a pass that both methods share.
        assert by_method["cat"].relevance == pytest.approx(alone.relevance, rel=1e-9)
        assert by_method["cat"].model == name


def test_agreement_is_the_rank_correlation_of_words(models):
    compared = clearhead.compare(models, TEXT, ["cat"], target=0, check=False)
    old, new = (compared[name]["cat"] for name in models)
    expected = spearman(*[np.array([word.relevance for word in e.words()]) for e in (old, new)])
    assert old.diagnostics[MODEL_AGREEMENT] == {"new": pytest.approx(expected)}
    assert new.diagnostics[MODEL_AGREEMENT] == {"old": pytest.approx(expected)}


def test_words_are_those_of_the_text_whatever_the_tokenizer(models):
    letters = letter_tokenizer()
    spelled = clearhead.load(model("bert", vocab_size=len(letters)).network, processor=letters)
    named = {"words": models["old"], "letters": spelled}
    compared = clearhead.compare(named, "a dull film", ["cat"], target=0, check=False)
    first, second = (by_method["cat"] for by_method in compared.values())
    assert len(second.tokens) > len(first.tokens)
    expected = spearman(*[np.array([word.relevance for word in e.words()]) for e in (first, second)])
    assert first.diagnostics[MODEL_AGREEMENT] == {"letters": pytest.approx(expected)}


def test_many_inputs_may_be_a_generator(models):
    texts = [TEXT, "a bad film"]
    compared = clearhead.compare(models, iter(texts), ["cat"], check=False)
    for by_method in compared.values():
        assert [explanation.text for explanation in by_method["cat"]] == texts
    records = compared.to_records(flat=True)
    assert [record["model"] for record in records] == ["old", "old", "new", "new"]
    assert compared["old"]["cat"]._repr_html_()
    assert "<h3>old</h3>" in compared._repr_html_()


def test_pictures_are_compared_on_the_coarser_grid():
    fine, coarse = image_model(), image_model(patch_size=16)
    compared = clearhead.compare({"fine": fine, "coarse": coarse}, picture(), ["cat"], target=0, check=False)
    assert compared["fine"]["cat"].grid != compared["coarse"]["cat"].grid
    assert set(compared["fine"]["cat"].diagnostics[MODEL_AGREEMENT]) == {"coarse"}


def test_a_single_word_has_no_order(models):
    compared = clearhead.compare(models, "good", ["cat"], target=0, check=False)
    assert MODEL_AGREEMENT not in compared["old"]["cat"].diagnostics
    alone = [compared["old"]["cat"]]
    assert note_agreement(alone) == alone


def test_without_a_method_all_models_can_be_explained_by_the_default():
    def answer(texts):
        return [[0.5, 0.5] for _ in texts]

    function = clearhead.load(answer, labels=["negative", "positive"])
    assert [spec.text for spec in resolve_methods([text_model(), text_model()], None)] == ["balanced-cat"]
    assert [spec.text for spec in resolve_methods([text_model(), function], None)] == ["occlusion"]


def test_mistakes(models):
    network = models["old"]
    with pytest.raises(BadOption, match="Two models are called"):
        clearhead.compare([network, network], TEXT)
    for nothing in ([], {}):
        with pytest.raises(BadOption, match="empty"):
            clearhead.compare(nothing, TEXT)
    with pytest.raises(BadInput, match="reads texts, but 'pictures' reads images"):
        clearhead.compare({"texts": network, "pictures": image_model()}, TEXT)
    named = Model(network.network, network.processor, name="named", class_names=["x", "y", "z"])
    with pytest.raises(BadInput, match=r"different classes: 'old' .*; 'named' x, y, z"):
        clearhead.compare({"old": network, "named": named}, TEXT)
    # Whoever names the class by its number says that it is the same.
    compared = clearhead.compare({"old": network, "named": named}, TEXT, ["cat"], target=1, check=False)
    assert compared["named"]["cat"].label == "y"

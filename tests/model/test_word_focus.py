"""Which word is explained: by its text, characters or index, or the first entity; and what is refused."""

import pytest
import torch
from helpers.tiny_heads import ENTITIES, MASK_ID, filling_bert, head_network, labelling_bert
from helpers.tiny_models import network
from helpers.tiny_tokenizers import byte_tokenizer

import clearhead
from clearhead.errors import BadInput, BadOption, TooLong
from clearhead.model.batches import Item
from clearhead.model.focused_inputs import describe_focus
from clearhead.model.inputs import encode
from clearhead.model.word_focus import TokenRow, list_entities

TEXT = "a joyless film is not very good"


def find_entities(text, labels, tokens=None):
    """Return the entities of a text whose tokens, between blanks unless they are given, have these labels."""
    model = labelling_bert()
    tokens = tokens or text.split()
    offsets, position = [], 0
    for token in tokens:
        start = text.index(token.removeprefix("##"), position)
        position = start + len(token.removeprefix("##"))
        offsets.append((start, position))
    item = Item(tuple(tokens), (False,) * len(tokens), text, tuple(offsets))
    logits = torch.nn.functional.one_hot(torch.tensor([ENTITIES.index(label) for label in labels]), 5).double()
    return list_entities(model, TokenRow(item, [], lambda: logits))


@pytest.mark.parametrize(
    ("labels", "entities"),
    [
        ("B-PER I-PER O B-LOC", [((0, 1), "B-PER"), ((3,), "B-LOC")]),
        ("B-PER B-PER O O", [((0,), "B-PER"), ((1,), "B-PER")]),
        ("I-PER I-PER I-LOC O", [((0, 1), "I-PER"), ((2,), "I-LOC")]),
        ("O O O O", []),
    ],
)
def test_neighbouring_tokens_of_one_label_are_an_entity(labels, entities):
    assert find_entities("Ada Byron of London", labels.split()) == entities


def test_further_tokens_of_a_word_belong_to_its_first_whatever_their_label():
    labels = ["B-PER", "O", "B-LOC", "O"]
    assert find_entities("Adaline went", labels, ["Ada", "##line", "w", "##ent"]) == [
        ((0, 1), "B-PER"),
        ((2, 3), "B-LOC"),
    ]


@pytest.mark.parametrize(
    ("focus", "tokens"),
    [("joyless", (2, 3)), ("film is", (4, 5)), ((2, 9), (2, 3)), (4, (4,)), (-2, (8,)), ("oy", (2,))],
)
def test_words_characters_and_indices(focus, tokens):
    explanation = clearhead.explain(labelling_bert(), TEXT, "gradient", focus=focus, check=False)
    assert explanation.diagnostics["focus"]["tokens"] == tokens


def test_the_first_entity_is_explained_and_the_others_are_named():
    model = labelling_bert()
    explanation = clearhead.explain(model, TEXT, "gradient", check=False)
    predicted = model.network.network(**model.processor(TEXT, return_tensors="pt")).logits[0].argmax(-1).tolist()
    first = next(index for index, number in enumerate(predicted) if number and 0 < index < len(predicted) - 1)
    focus = explanation.diagnostics["focus"]
    assert focus["tokens"][0] == first
    assert focus["note"].startswith("the first of ")
    assert explanation.label.startswith(ENTITIES[predicted[first]])


def test_without_an_entity_the_caller_has_to_choose():
    net = head_network("words", "bert")
    with torch.no_grad():
        net.classifier.bias[0] += 100
    model = clearhead.load(net, labelling_bert().processor)
    with pytest.raises(BadInput, match=r"finds no entity.*focus='a'"):
        clearhead.explain(model, TEXT)
    assert clearhead.explain(model, TEXT, focus="film", check=False).label == "O at “film”"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"focus": "plot"}, "'plot' does not occur in the text"),
        ({"focus": 99}, "tokens 0 … 9"),
        ({"focus": (5, 2)}, "Characters 5 … 2 are not in the text"),
        ({"focus": 1.5}, "Invalid focus=1.5"),
        ({"focus": " "}, "The focus is empty"),
        ({"focus": ["film", "good"]}, "2 values of focus were given for 1 inputs"),
        ({"focus": "film", "target": "ORG"}, "No label is called 'ORG'"),
        ({"focus": "film", "answer": "O"}, "no language model"),
        ({"focus": "film", "overflow": "windows"}, ""),
    ],
)
def test_what_cannot_be_explained_is_refused(options, message):
    if message:
        with pytest.raises((BadInput, BadOption, clearhead.ClearheadError), match=message):
            clearhead.explain(labelling_bert(), TEXT, **options)
    else:
        assert clearhead.explain(labelling_bert(), TEXT, check=False, **options).text == TEXT


def test_long_texts_have_no_windows():
    with pytest.raises(TooLong, match="passage around it"):
        clearhead.explain(labelling_bert(), "good film " * 60, focus="film", overflow="windows", check=False)


def test_one_focus_for_each_text():
    explanations = clearhead.explain(labelling_bert(), ["a good film", "bad film"], focus=["good", "bad"], check=False)
    assert [explanation.label.partition(" ")[2] for explanation in explanations] == ["at “good”", "at “bad”"]


def test_a_word_of_the_second_text_of_a_pair():
    explanation = clearhead.explain(labelling_bert(), ("a film", "very good"), "gradient", focus="good", check=False)
    assert explanation.tokens[explanation.diagnostics["focus"]["tokens"][0]] == "good"


def test_other_models_have_no_focus():
    with pytest.raises(BadOption, match="leave out focus"):
        clearhead.explain(clearhead.load(), "a fine film", focus="film")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a film", {}, r"has no \[MASK\]: write \[MASK\]"),
        ("a [MASK]", {"target": "zebra"}, "not in the vocabulary"),
        ("a [MASK]", {"target": "joyless"}, r"2 tokens of .* \(joy ##less\)"),
        ("a [MASK]", {"target": clearhead.Target("film", versus="joyless")}, "2 tokens"),
        ("a [MASK]", {"focus": 1}, "masks 0 … 0"),
        ("a [MASK] film", {"focus": "film"}, "no masked word"),
    ],
)
def test_masked_words_that_cannot_be_explained(text, options, message):
    with pytest.raises(BadInput, match=message):
        clearhead.explain(filling_bert(), text, **options)


def test_a_masked_word_by_its_characters_and_its_words_by_name_or_id():
    model = filling_bert()
    text = "a [MASK] is [MASK]"
    film = model.processor.convert_tokens_to_ids("film")
    for target in ("film", " Film", film):
        explanation = clearhead.explain(model, text, "gradient", target, focus=(12, 18), check=False)
        assert explanation.target == film
        assert explanation.label == "film at [MASK] 2 of 2"


def test_words_of_byte_level_tokenizers_follow_a_blank():
    tokenizer = byte_tokenizer()
    net = head_network("masks", "roberta", vocab_size=len(tokenizer), pad_token_id=1)
    model = clearhead.load(net, tokenizer)
    (word,) = tokenizer(" film", add_special_tokens=False)["input_ids"]
    explanation = clearhead.explain(model, "a film is<mask> good", "gradient", "film", check=False)
    assert tokenizer.convert_ids_to_tokens(word) == "Ġfilm"
    assert explanation.target == word
    assert explanation.label == "film at <mask>"


def test_without_a_tokenizer_words_are_ids():
    model = clearhead.load(head_network("masks", "bert"))
    batch = {"input_ids": torch.tensor([[7, MASK_ID, 9]])}
    assert clearhead.explain(model, batch, "gradient", 8, check=False)[0].label == "token 8 at mask token"
    with pytest.raises(BadInput, match="without a tokenizer"):
        clearhead.explain(model, batch, "gradient", "film")


def test_encoded_texts_have_a_mark_for_every_token():
    encoded = encode(labelling_bert(), "a joyless film")
    assert len(encoded.values["focus"]) == encoded.length
    assert encoded.values["focus"].count(1) == 1


@pytest.mark.parametrize("text", ["a film is [MASK]", "[MASK] is not [MASK]"])
def test_a_mask_at_the_edge_of_a_text_was_read(text):
    explanation = clearhead.explain(filling_bert(), text, "gradient", check=False)
    assert "read_share" not in explanation.diagnostics


def test_the_page_says_what_a_focus_may_be():
    assert "first entity" in describe_focus(labelling_bert())
    assert "first mask" in describe_focus(filling_bert())
    assert describe_focus(clearhead.load(network("bert"))) == ""

"""Loading: objects, folders in hub layout, copies for device and dtype; and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from helpers.tiny_models import SIZES, TEXT, image_processor, network, tensors
from helpers.tiny_tokenizers import word_piece_tokenizer
from torch import nn

import clearhead
from clearhead import UnsupportedModel
from clearhead.errors import BadFile, BadInput, BadOption, UnknownName
from clearhead.model import hub
from clearhead.model.model import max_tokens


@pytest.fixture
def folder(tmp_path):
    network("bert", dtype=torch.float32).save_pretrained(tmp_path)
    word_piece_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def test_a_folder_in_hub_layout(folder):
    loaded = clearhead.load(folder)
    assert type(loaded.network).__name__ == "BertForSequenceClassification"
    explanation = clearhead.explain(loaded, "a good film", "rollout")
    objects = clearhead.load(network("bert", dtype=torch.float32), word_piece_tokenizer())
    np.testing.assert_allclose(
        explanation.relevance, clearhead.explain(objects, "a good film", "rollout").relevance, rtol=1e-5
    )
    assert clearhead.explain(str(folder), "a good film", "rollout").model == str(folder)


def test_an_image_folder(tmp_path):
    network("vit", dtype=torch.float32).save_pretrained(tmp_path)
    image_processor().save_pretrained(tmp_path)
    assert clearhead.load(tmp_path).takes_images


def test_a_masked_lm_folder(folder, tmp_path):
    lm = transformers.BertForMaskedLM(network("bert").config).float()
    lm.save_pretrained(tmp_path / "lm")
    loaded = clearhead.load(folder, lm_head=tmp_path / "lm")
    explanation = clearhead.explain(loaded, "a good good film", "decoded-gradcam:layer=2,top=1")
    assert explanation.relevance[2] == explanation.relevance[3]


def test_pickled_weights_are_refused(folder):
    (folder / "model.safetensors").unlink()
    torch.save(network("bert", dtype=torch.float32).state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(BadFile, match="allow_pickle"):
        clearhead.load(folder)
    assert clearhead.load(folder, allow_pickle=True).labels == ["LABEL_0", "LABEL_1", "LABEL_2"]


def test_code_in_the_folder_is_not_executed(folder):
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "evil.Config", "AutoModelForSequenceClassification": "evil.Model"}
    config["model_type"] = "evil"
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(folder / 'executed')!r}, 'w')")
    with pytest.raises(BadFile):
        clearhead.load(folder)
    assert not (folder / "executed").exists()


@pytest.mark.parametrize("name", ["no/such-model", "missing-folder"])
def test_what_is_not_there(name, monkeypatch):
    monkeypatch.setattr(hub, "can_reach_hub", lambda: False)
    with pytest.raises(BadFile, match="cannot be loaded"):
        clearhead.load(name)


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "../nowhere", "models/", "a/b/c"])
def test_a_folder_that_is_not_there_is_told_without_asking_the_hub(name, monkeypatch):
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", lambda *_, **__: pytest.fail("asked the hub"))
    with pytest.raises(BadFile, match="There is no such folder") as raised:
        clearhead.load(name)
    assert "pickle" not in str(raised.value)
    with pytest.raises(BadFile, match="There is no such folder"):
        clearhead.load(lm_head=name)


def test_an_embedded_model_by_path():
    assert clearhead.load(Path("clearhead/sst2-minilm")).name == "clearhead/sst2-minilm"


@pytest.mark.parametrize("name", ["x" * 300 + "/", "x" * 300, "ü" * 150, "no id!"])
def test_a_name_that_is_no_hub_id(name):
    with pytest.raises(BadFile, match="There is no such folder"):
        clearhead.load(name)


@pytest.mark.parametrize("name", ["clearhead/sst2", "sst2-minilm", "clearhead/sst2-minilm-v2"])
def test_a_mistyped_embedded_model_is_told_without_asking_the_hub(name, monkeypatch):
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", lambda *_, **__: pytest.fail("asked the hub"))
    with pytest.raises(UnknownName, match="clearhead/sst2-minilm"):
        clearhead.load(name)


@pytest.mark.parametrize(
    "net",
    [
        transformers.BertLMHeadModel(transformers.BertConfig(**TEXT)),
        transformers.XLNetLMHeadModel(transformers.XLNetConfig(vocab_size=60, d_model=32, n_layer=1, n_head=2)),
    ],
    ids=["bert", "xlnet"],
)
def test_language_models_whose_words_see_those_after_them_are_refused(net):
    with pytest.raises(UnsupportedModel, match="reads in both directions"):
        clearhead.load(net)


def test_a_language_model_that_reads_in_one_direction_writes():
    config = transformers.XLNetConfig(vocab_size=60, d_model=32, n_layer=1, n_head=2, attn_type="uni")
    assert clearhead.load(transformers.XLNetLMHeadModel(config)).writes


def test_models_of_videos_are_refused():
    config = transformers.VideoMAEConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=32
    )
    with pytest.raises(UnsupportedModel, match="reads videos"):
        clearhead.load(transformers.VideoMAEForVideoClassification(config))


def test_classes_that_a_config_only_counts_have_numbers():
    """PVT's config keeps `num_labels` beside `id2label`, which it leaves out."""
    sizes = {"image_size": 32, "hidden_sizes": [16] * 4, "depths": [1] * 4, "num_attention_heads": [1] * 4}
    config = transformers.PvtConfig(**sizes, num_labels=3)
    assert config.id2label is None
    model = clearhead.load(transformers.PvtForImageClassification(config))
    pixels = {"pixel_values": torch.ones(1, 3, 32, 32)}
    (explanation,) = clearhead.explain(model, pixels, "gradient-x-input", target=1)
    assert explanation.label == "LABEL_1"
    with pytest.raises(BadInput, match="classes 0 … 2"):
        clearhead.explain(model, pixels, "gradient-x-input", target=3)


def test_other_heads_in_folders_are_refused(tmp_path):
    transformers.BertForPreTraining(transformers.BertConfig(**TEXT)).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match="BertForPreTraining"):
        clearhead.load(tmp_path)


def test_encoder_decoders_that_neither_classify_nor_write_are_refused():
    config = transformers.BartConfig(
        vocab_size=60, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_ffn_dim=32
    )
    with pytest.raises(UnsupportedModel, match="neither classifies a text nor writes one"):
        clearhead.load(transformers.BartForQuestionAnswering(config))


@pytest.mark.parametrize("source", [object(), 3])
def test_what_is_no_model_is_refused(source):
    with pytest.raises(UnsupportedModel, match="Hugging Face"):
        clearhead.load(source)


def test_a_module_that_does_not_take_a_models_input_is_refused():
    with pytest.raises(UnsupportedModel, match="A Linear failed when it was tried with input_ids"):
        clearhead.load(nn.Linear(2, 2))


def test_another_dtype_is_a_copy():
    net = network("bert", dtype=torch.float32)
    loaded = clearhead.load(net, dtype="float64")
    assert (net.dtype, loaded.dtype) == (torch.float32, torch.float64)
    assert clearhead.load(net, device="cpu").network is net
    with pytest.raises(BadOption, match="not a floating-point type"):
        clearhead.load(net, dtype="int8")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU to fail on")
def test_a_device_that_is_not_there():
    with pytest.raises(BadOption, match="cannot be moved to 'cuda'"):
        clearhead.load(network("bert"), device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
def test_a_gpu_gives_the_same_numbers():
    here, there = (clearhead.load(network("bert"), device=device) for device in ("cpu", "cuda"))
    for explanation, reference in zip(
        clearhead.explain(here, tensors("bert")), clearhead.explain(there, tensors("bert")), strict=True
    ):
        np.testing.assert_allclose(explanation.relevance, reference.relevance, rtol=1e-7)


@pytest.mark.parametrize(("family", "limit"), [("bert", 64), ("roberta", 62), ("gpt2", 64), ("opt", 64), ("llama", 64)])
def test_how_long_an_input_may_be(family, limit):
    assert max_tokens(clearhead.load(network(family))) == limit


def test_prompt_learning_adapters_are_refused():
    peft = pytest.importorskip("peft", reason="peft is not installed")
    settings = peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=2, token_dim=32, num_layers=3)
    settings.num_transformer_submodules, settings.num_attention_heads = 1, SIZES["num_attention_heads"]
    with pytest.raises(UnsupportedModel, match="Prompt-learning"):
        clearhead.load(peft.get_peft_model(network("bert", dtype=torch.float32), settings))


def test_a_processor_that_is_given_is_taken(folder):
    tokenizer = word_piece_tokenizer()
    assert clearhead.load(folder, tokenizer).processor is tokenizer
    assert clearhead.load(clearhead.load(folder), tokenizer).processor is tokenizer


@pytest.mark.parametrize(
    ("family", "processor", "expected"),
    [
        ("bert", "bert-base", "tokenizer"),
        ("bert", image_processor(), "tokenizer"),
        ("vit", word_piece_tokenizer(), "image"),
    ],
)
def test_a_processor_of_another_kind_is_refused(family, processor, expected):
    with pytest.raises(UnsupportedModel, match=f"needs an? {expected}"):
        clearhead.load(network(family), processor)


def test_the_fitting_part_of_a_processor_is_taken():
    class Both:
        tokenizer, image_processor = word_piece_tokenizer(), image_processor()

    assert clearhead.load(network("bert"), Both()).processor is Both.tokenizer
    assert clearhead.load(network("vit"), Both()).processor is Both.image_processor


@pytest.mark.parametrize("source", [5, nn.Linear(2, 2), network("bert")], ids=lambda value: type(value).__name__)
def test_what_is_no_masked_lm_is_refused(source):
    with pytest.raises(BadOption, match="ForMaskedLM"):
        clearhead.load(network("bert"), lm_head=source)


def test_a_head_of_another_width_is_refused():
    lm = transformers.BertForMaskedLM(transformers.BertConfig(**{**TEXT, "hidden_size": 16})).double()
    with pytest.raises(UnsupportedModel, match="16 channels"):
        clearhead.load(network("bert"), lm_head=lm)


def test_a_head_with_other_classes_than_its_config_is_refused():
    net = network("bert")
    net.classifier = nn.Linear(32, 6).double()
    with pytest.raises(UnsupportedModel, match="6 logits, but its config names 3"):
        clearhead.explain(net, tensors("bert"), "occlusion")
    net.config.id2label = dict(enumerate("abcdef"))
    assert clearhead.explain(net, tensors("bert"), "att-cat", "f")[0].label == "f"


@pytest.mark.parametrize("architecture", [None, transformers.BertForQuestionAnswering])
def test_a_network_that_returns_tuples(architecture):
    net = network("bert", network_class=architecture, num_labels=2) if architecture else network("bert")
    expected = clearhead.explain(net, tensors("bert"), "att-cat")
    net.config.return_dict = False
    for explanation, reference in zip(clearhead.explain(net, tensors("bert"), "att-cat"), expected, strict=True):
        np.testing.assert_array_equal(explanation.relevance, reference.relevance)


def test_a_network_made_inside_inference_mode_is_refused():
    with torch.inference_mode():
        net = network("bert")
    with pytest.raises(UnsupportedModel, match="inference_mode"):
        clearhead.load(net)


def test_a_trace_of_whatever_can_be_explained(folder):
    trace = clearhead.capture(folder, "a good film")
    assert torch.equal(trace.logits, clearhead.capture(clearhead.load(folder), "a good film").logits)


def test_a_head_of_another_vocabulary_is_refused():
    lm = transformers.BertForMaskedLM(transformers.BertConfig(**{**TEXT, "vocab_size": 7})).double()
    with pytest.raises(clearhead.ClearheadError, match="vocabulary"):
        clearhead.explain(clearhead.load(network("bert"), lm_head=lm), tensors("bert"), "decoded-gradcam")

"""Folders of PEFT adapters."""

import json
import shutil

import pytest
import torch
import transformers
from helpers.custom_modules import make_body
from helpers.tiny_tokenizers import plot_tokenizer

import clearhead
from clearhead.errors import BadFile

peft = pytest.importorskip("peft")

TEXT = "a fine film with no plot"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return the folder of an adapter with a head of four classes beside its base model, which has none."""
    root = tmp_path_factory.mktemp("models")
    make_body().save_pretrained(root / "base")
    plot_tokenizer().save_pretrained(root / "base")
    network = transformers.AutoModelForSequenceClassification.from_pretrained(root / "base", num_labels=4)
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"], init_lora_weights=False)
    adapted = peft.get_peft_model(network, config)
    adapted.save_pretrained(root / "adapter")
    return root, adapted.eval()


def test_base_and_adapter_are_loaded(folders):
    root, adapted = folders
    model = clearhead.load(root / "adapter", labels=list("abcd"))
    explanation = clearhead.explain(model, TEXT)
    with torch.no_grad():
        logits = adapted(**plot_tokenizer()(TEXT, return_tensors="pt")).logits
    assert explanation.probability == pytest.approx(float(logits.softmax(-1).max()), abs=1e-6)
    assert explanation.label == "abcd"[int(logits.argmax())]


def test_the_base_may_stand_beside_the_adapter(folders, tmp_path):
    root, _ = folders
    shutil.copytree(root, tmp_path / "moved")
    _set_base(tmp_path / "moved" / "adapter", "../base")
    assert clearhead.load(tmp_path / "moved" / "adapter").classes == 4


def _set_base(folder, base):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "base_model_name_or_path": base}))


BASES = {"folder": ("/nowhere/base", "adapter of '/nowhere/base'"), "none": (None, "names no base model")}


@pytest.mark.parametrize(("base", "message"), BASES.values(), ids=BASES)
def test_an_adapter_without_its_base_is_refused(folders, tmp_path, base, message):
    shutil.copytree(folders[0] / "adapter", tmp_path / "adapter")
    _set_base(tmp_path / "adapter", base)
    with pytest.raises(BadFile, match=message):
        clearhead.load(tmp_path / "adapter")


def test_a_damaged_adapter_is_refused(folders, tmp_path):
    shutil.copytree(folders[0] / "adapter", tmp_path / "adapter")
    (tmp_path / "adapter" / "adapter_config.json").write_text("{")
    with pytest.raises(BadFile, match="is damaged"):
        clearhead.load(tmp_path / "adapter")


def test_pickled_adapters_are_refused(folders, tmp_path):
    shutil.copytree(folders[0] / "adapter", tmp_path / "adapter")
    (tmp_path / "adapter" / "adapter_model.safetensors").unlink()
    with pytest.raises(BadFile, match="save the adapter as safetensors"):
        clearhead.load(tmp_path / "adapter")


def test_without_peft_the_package_is_named(folders, monkeypatch):
    monkeypatch.setattr("clearhead.model.adapters.find_spec", lambda name: None)
    with pytest.raises(BadFile, match="pip install peft"):
        clearhead.load(folders[0] / "adapter")

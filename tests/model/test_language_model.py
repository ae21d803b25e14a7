"""The embedded language model: found in a package, converted once, offline, and never half written."""

from pathlib import Path

import pytest
import torch
from helpers.gguf_models import write_gguf
from helpers.language_models import make_decoder, make_tokenizer

import clearhead
from clearhead.bench.plan import _model_digest
from clearhead.errors import BadFile, ClearheadError, CorruptModel
from clearhead.model.zoo import language_model

PROMPT = "the capital of france is"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("CLEARHEAD_CACHE", str(folder))
    return folder


@pytest.fixture
def gguf_file(tmp_path, monkeypatch):
    """A stand-in for the file in the installed package."""
    path = tmp_path / "package" / language_model.GGUF
    path.parent.mkdir()
    path.write_bytes(b"weights")
    monkeypatch.setattr(language_model, "find_gguf", lambda: path)
    _accept(monkeypatch, path)
    return path


def _accept(monkeypatch, path: Path) -> None:
    monkeypatch.setattr(language_model, "SHA256", language_model._hash_file(path))


@pytest.fixture
def conversions(monkeypatch):
    """Conversion replaced by one that writes a tiny model; counts how often it runs."""
    calls = []

    def save(gguf, folder):
        calls.append(gguf)
        make_decoder("llama").float().save_pretrained(folder)
        make_tokenizer().save_pretrained(folder)

    monkeypatch.setattr(language_model, "_save_converted", save)
    monkeypatch.setattr(language_model, "find_spec", lambda name: name)
    return calls


def test_without_the_package_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(language_model, "PACKAGE", "no_such_package")
    with pytest.raises(ClearheadError, match="clearhead/smollm2 is not installed") as failure:
        clearhead.load("clearhead/smollm2")
    assert language_model.INSTALL in str(failure.value) and "\n" not in str(failure.value)
    assert clearhead.models()["clearhead/smollm2"]["installed"] is False
    assert clearhead.models()["clearhead/smollm2"]["install"] == language_model.INSTALL


def test_without_gguf_one_line_says_what_to_install(gguf_file, monkeypatch):
    monkeypatch.setattr(language_model, "find_spec", lambda name: None)
    with pytest.raises(ClearheadError, match=r"needs the package gguf.*clearhead\[llm\]"):
        clearhead.load("clearhead/smollm2")


def test_the_package_is_found_without_importing_it(tmp_path, monkeypatch):
    package = tmp_path / "holds_a_model"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('needs llama-cpp-python')")
    (package / language_model.GGUF).write_bytes(b"")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(language_model, "PACKAGE", "holds_a_model")
    assert language_model.find_gguf() == package / language_model.GGUF
    assert clearhead.models()["clearhead/smollm2"]["installed"] is True


def test_it_is_converted_once(gguf_file, conversions, cache, capsys):
    first = clearhead.load("clearhead/smollm2")
    assert first.name == "clearhead/smollm2" and first.writes
    assert capsys.readouterr().err.count("Converting") == 1
    clearhead.load("clearhead/smollm2")
    assert len(conversions) == 1
    assert capsys.readouterr().err == ""
    # Nothing unfinished is left beside the converted model.
    assert [path.name.startswith("smollm2-") for path in cache.iterdir()] == [True]


def test_damaged_conversions_are_replaced(gguf_file, conversions):
    folder = language_model.prepare_folder()
    weights = folder / "model.safetensors"
    intact = weights.read_bytes()
    weights.write_bytes(intact[:-1])
    assert language_model.prepare_folder() == folder
    assert len(conversions) == 2
    assert weights.read_bytes() == intact


def test_interrupted_conversions_leave_nothing(gguf_file, conversions, cache, monkeypatch):
    def stop(gguf, folder):
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(language_model, "_save_converted", stop)
    with pytest.raises(KeyboardInterrupt):
        language_model.prepare_folder()
    assert list(cache.iterdir()) == []


def test_other_files_are_refused(gguf_file, conversions):
    gguf_file.write_bytes(b"other weights")
    with pytest.raises(CorruptModel, match="Reinstall"):
        clearhead.load("clearhead/smollm2")
    assert conversions == []


def test_a_cache_that_cannot_be_written_is_named(gguf_file, conversions, cache):
    cache.write_text("not a folder")
    with pytest.raises(BadFile, match="CLEARHEAD_CACHE"):
        clearhead.load("clearhead/smollm2")


def test_its_short_name_is_suggested():
    with pytest.raises(KeyError, match="clearhead/smollm2"):
        clearhead.load("smollm2")


def test_benchmarks_identify_it_without_loading():
    assert _model_digest("clearhead/smollm2") == _model_digest("clearhead/smollm2") != _model_digest(None)


def test_conversion_keeps_every_number(gguf_file, monkeypatch):
    pytest.importorskip("gguf", reason="needs the extra clearhead[llm]")
    network = make_decoder("llama").float()
    network.tie_weights()
    network.lm_head.weight = network.model.embed_tokens.weight
    write_gguf(network, gguf_file)
    _accept(monkeypatch, gguf_file)
    model = clearhead.load("clearhead/smollm2")
    converted = model.network.language_model
    assert getattr(converted.config, "quantization_config", None) is None
    ids = torch.tensor([make_tokenizer()(PROMPT)["input_ids"]])
    assert model.processor(PROMPT)["input_ids"] == ids[0].tolist()
    assert torch.equal(converted(ids).logits, network(ids).logits)
    assert clearhead.explain(model, PROMPT, "attn-lrp", answer="paris").answer == "paris"

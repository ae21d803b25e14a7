"""Sources and answers of encoder–decoders."""

import pytest
import transformers

import clearhead
from clearhead.errors import BadOption, UnsupportedModel
from clearhead.model.answer_inputs import answer_prompt, encode_prompt
from clearhead.model.inputs import collate
from clearhead.model.language import ANSWER_POSITIONS, SOURCE_LENGTH
from clearhead.model.sequence_inputs import find_start
from tests.helpers.language_models import make_encoder_decoder, make_tokenizer


@pytest.fixture(scope="module")
def model():
    return clearhead.load(make_encoder_decoder("bart"), make_tokenizer())


def encode(model, source, answer):
    return answer_prompt(model, encode_prompt(model, source), answer, {})


def test_the_decoders_input_begins_at_the_same_position_in_every_row(model):
    rows = [encode(model, "the river in paris", "long"), encode(model, "paris", "the river is grey")]
    tensors = collate(model, rows).tensors
    source = max(row.values[SOURCE_LENGTH][0] for row in rows)
    assert tensors[SOURCE_LENGTH].tolist() == [[source]] * 2
    for index, row in enumerate(rows):
        (length,) = row.values[SOURCE_LENGTH]
        ids, mask = tensors["input_ids"][index], tensors["attention_mask"][index]
        assert ids[:length].tolist() == row.values["input_ids"][:length]
        decoder = row.values["input_ids"][length:]
        assert ids[source : source + len(decoder)].tolist() == decoder
        assert mask.sum() == row.length and mask[length:source].sum() == 0
        assert tensors[ANSWER_POSITIONS][index, 0] == source


def test_options_of_a_generation_name_what_the_decoder_starts_with(model):
    assert find_start(model, {}) == [1]
    assert find_start(model, {"decoder_start_token_id": 4, "forced_bos_token_id": 9}) == [4, 9]


def test_a_decoder_without_a_start_token_needs_one():
    network = make_encoder_decoder("bart")
    network.generation_config.decoder_start_token_id = None
    network.generation_config.bos_token_id = None
    model = clearhead.load(network, make_tokenizer())
    with pytest.raises(BadOption, match="decoder_start_token_id"):
        clearhead.explain(model, "paris", "gradient", answer="long")


def test_a_folder_that_does_not_name_its_architecture_is_loaded(tmp_path):
    network = make_encoder_decoder("flan-t5").float()
    network.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"architectures"', '"unused"'))
    loaded = clearhead.load(tmp_path)
    assert type(loaded.network.language_model).__name__ == "T5ForConditionalGeneration"
    assert loaded.problem == "answer"


def test_encoders_of_speech_are_refused():
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "vocab_size": 60}
    config = transformers.WhisperConfig(**sizes, decoder_attention_heads=2, pad_token_id=0, decoder_start_token_id=0)
    with pytest.raises(UnsupportedModel, match="WhisperForConditionalGeneration has no head that is covered"):
        clearhead.load(transformers.WhisperForConditionalGeneration(config))

"""Tiny language models with a byte-level tokenizer, for tests of generated answers."""

from functools import cache
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXTS = [
    "the capital of france is paris and the capital of england is london",
    "the river in paris is long, the river in london is grey",
]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 8}


@cache
def _train_tokenizer() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return tokenizer.to_str()


def make_tokenizer() -> Any:
    """Return a byte-level tokenizer that knows the words of `TEXTS` and has a chat template."""
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_train_tokenizer()), bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


DECODERS = {
    "gpt2": ("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 4}),
    "opt": (
        "OPT",
        {"hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "word_embed_proj_dim": 32},
    ),
    "llama": ("Llama", GROUPED),
    "qwen2": ("Qwen2", GROUPED),
    "qwen3": ("Qwen3", GROUPED),
    "mistral": ("Mistral", {**GROUPED, "sliding_window": 4}),
    "phi3": ("Phi3", GROUPED),
    "gemma2": ("Gemma2", {**GROUPED, "sliding_window": 4, "query_pre_attn_scalar": 8}),
    "gemma3": ("Gemma3", {**GROUPED, "sliding_window": 4, "query_pre_attn_scalar": 8}),
}


def make_decoder(family: str, *, seed: int = 0) -> Any:
    """Return a tiny decoder with random weights, in float64."""
    prefix, settings = DECODERS[family]
    network_type = getattr(transformers, f"{prefix}ForCausalLM", None) or getattr(transformers, f"{prefix}LMHeadModel")
    config = network_type.config_class(
        vocab_size=len(make_tokenizer()), bos_token_id=0, eos_token_id=1, pad_token_id=1, **settings
    )
    torch.manual_seed(seed)
    return network_type(config).double().eval()


STACKS = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
# A larger deviation of the weights, so that attention is not uniform.
SHAPES = {"d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64, "init_std": 0.2}
T5_SHAPES = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "relative_attention_num_buckets": 8}
ENCODER_DECODERS = {
    "t5": ("T5ForConditionalGeneration", {**T5_SHAPES, "tie_word_embeddings": True}),
    # Gated layers and a head of its own.
    "flan-t5": (
        "T5ForConditionalGeneration",
        {**T5_SHAPES, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "bart": ("BartForConditionalGeneration", {**SHAPES, **STACKS}),
    "marian": ("MarianMTModel", {**SHAPES, **STACKS, "scale_embedding": True}),
    "mbart": ("MBartForConditionalGeneration", {**SHAPES, **STACKS, "decoder_start_token_id": 5}),
    "pegasus": ("PegasusForConditionalGeneration", {**SHAPES, **STACKS}),
}


def make_encoder_decoder(family: str, *, seed: int = 0, **settings: Any) -> Any:
    """Return a tiny encoder–decoder with random weights, in float64."""
    name, sizes = ENCODER_DECODERS[family]
    network_type = getattr(transformers, name)
    tokens = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "decoder_start_token_id": 1}
    config = network_type.config_class(vocab_size=len(make_tokenizer()), **{**tokens, **sizes, **settings})
    torch.manual_seed(seed)
    return network_type(config).double().eval()

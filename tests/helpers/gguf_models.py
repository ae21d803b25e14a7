"""A tiny Llama written as a GGUF file, as llama.cpp would write it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from helpers.language_models import make_tokenizer

PER_BLOCK = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
OTHERS = {"embed_tokens": "token_embd", "norm": "output_norm"}


def write_gguf(network: Any, path: Path) -> None:
    """Write a float32 Llama with tied embeddings, and the byte-level tokenizer of the tests."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    _write_sizes(writer, network.config)
    _write_tokenizer(writer)
    for name, weight in network.model.named_parameters():
        writer.add_tensor(_rename(name), _reorder(name, weight.detach().float().numpy(), network.config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_sizes(writer: Any, config: Any) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)


def _write_tokenizer(writer: Any) -> None:
    model = json.loads(make_tokenizer().backend_tokenizer.to_str())["model"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(sorted(model["vocab"], key=model["vocab"].get))
    writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(1)


def _rename(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in OTHERS:
        return f"{OTHERS[stem]}.weight"
    _, block, rest = stem.split(".", 2)
    return f"blk.{block}.{PER_BLOCK[rest]}.weight"


def _reorder(name: str, weight: np.ndarray, config: Any) -> np.ndarray:
    """Return the rows of queries and keys in the order of llama.cpp, whose rotations pair neighbours."""
    if "q_proj" in name:
        heads = config.num_attention_heads
    elif "k_proj" in name:
        heads = config.num_key_value_heads
    else:
        return weight
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))

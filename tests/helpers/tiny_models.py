"""Tiny random models of many families, in float64."""

import os
from functools import cache
from pathlib import Path

import torch
import transformers as hf
from helpers.tiny_tokenizers import plot_tokenizer, word_piece_tokenizer
from transformers.modeling_outputs import SequenceClassifierOutput

import clearhead
from clearhead.model.model import Model

SHARED = Path(os.environ.get("CLEARHEAD_SHARED", Path(__file__).parents[3] / "shared"))

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "num_labels": 3,
}
TEXT = {**SIZES, "vocab_size": 60, "max_position_embeddings": 64, "pad_token_id": 0}
ROTARY = {**TEXT, "num_key_value_heads": 2, "head_dim": 8}
MODERN = {**TEXT, "global_attn_every_n_layers": 2, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2}
MODERN |= {"bos_token_id": 1, "eos_token_id": 2}
IMAGE = {**SIZES, "image_size": 32, "patch_size": 8}
OPT = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "ffn_dim": 48, "word_embed_proj_dim": 32}
OPT |= {"vocab_size": 60, "max_position_embeddings": 64, "num_labels": 3, "pad_token_id": 0}
DEBERTA = {**TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}
DISTIL = {"vocab_size": 60, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 64}
DISTIL |= {"num_labels": 3, "pad_token_id": 0}
GPT2 = {"vocab_size": 60, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "num_labels": 3}
GPT2 |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
T5 = {"vocab_size": 60, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 3, "num_heads": 4, "num_labels": 3}
T5 |= {"pad_token_id": 0, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16}
EXPERTS = {**ROTARY, "num_experts_per_tok": 2}
QWEN_EXPERTS = {**EXPERTS, "num_experts": 4, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 24}
SWIN = {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
CLIP = {
    "vision_config": {key: value for key, value in IMAGE.items() if key != "num_labels"},
    "text_config": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 30}
    | {"intermediate_size": 16, "bos_token_id": 1, "eos_token_id": 2},
    "num_labels": 3,
}

FAMILIES = {
    "bert": (hf.BertConfig, TEXT, hf.BertForSequenceClassification),
    "roberta": (hf.RobertaConfig, {**TEXT, "pad_token_id": 1}, hf.RobertaForSequenceClassification),
    "xlm-r": (hf.XLMRobertaConfig, {**TEXT, "pad_token_id": 1}, hf.XLMRobertaForSequenceClassification),
    "distilbert": (hf.DistilBertConfig, DISTIL, hf.DistilBertForSequenceClassification),
    "albert": (hf.AlbertConfig, {**TEXT, "embedding_size": 16}, hf.AlbertForSequenceClassification),
    "electra": (hf.ElectraConfig, {**TEXT, "embedding_size": 16}, hf.ElectraForSequenceClassification),
    "modernbert": (hf.ModernBertConfig, MODERN, hf.ModernBertForSequenceClassification),
    "modernbert-mean": (
        hf.ModernBertConfig,
        {**MODERN, "classifier_pooling": "mean"},
        hf.ModernBertForSequenceClassification,
    ),
    "deberta-v2": (hf.DebertaV2Config, DEBERTA, hf.DebertaV2ForSequenceClassification),
    "vit": (hf.ViTConfig, IMAGE, hf.ViTForImageClassification),
    "deit": (hf.DeiTConfig, IMAGE, hf.DeiTForImageClassification),
    "deit-teacher": (hf.DeiTConfig, IMAGE, hf.DeiTForImageClassificationWithTeacher),
    "beit": (hf.BeitConfig, {**IMAGE, "use_relative_position_bias": True}, hf.BeitForImageClassification),
    "dinov2": (hf.Dinov2Config, {**IMAGE, "mlp_ratio": 2}, hf.Dinov2ForImageClassification),
    "swin": (hf.SwinConfig, {**SWIN, "num_labels": 3}, hf.SwinForImageClassification),
    "clip": (hf.CLIPConfig, CLIP, hf.CLIPForImageClassification),
    "gpt2": (hf.GPT2Config, GPT2, hf.GPT2ForSequenceClassification),
    "opt": (hf.OPTConfig, OPT, hf.OPTForSequenceClassification),
    "llama": (hf.LlamaConfig, ROTARY, hf.LlamaForSequenceClassification),
    "qwen3": (hf.Qwen3Config, ROTARY, hf.Qwen3ForSequenceClassification),
    "gemma": (hf.GemmaConfig, ROTARY, hf.GemmaForSequenceClassification),
}


class T5EncoderClassifier(hf.T5EncoderModel):
    """T5's encoder with a head on its first token: the library has a head for encoder and decoder together only."""

    def __init__(self, config):
        super().__init__(config)
        self.classifier = torch.nn.Linear(config.d_model, config.num_labels)

    def forward(self, input_ids, attention_mask=None, **options):
        hidden = super().forward(input_ids=input_ids, attention_mask=attention_mask, **options).last_hidden_state
        return SequenceClassifierOutput(logits=self.classifier(hidden[:, 0]))


BALANCED_FAMILIES = {
    "mpnet": (hf.MPNetConfig, {**TEXT, "pad_token_id": 1}, hf.MPNetForSequenceClassification),
    "t5": (hf.T5Config, T5, T5EncoderClassifier),
    "t5-gated": (hf.T5Config, {**T5, "feed_forward_proj": "gated-gelu"}, T5EncoderClassifier),
    "gemma2": (hf.Gemma2Config, ROTARY, hf.Gemma2ForSequenceClassification),
    "mixtral": (hf.MixtralConfig, {**EXPERTS, "num_local_experts": 4}, hf.MixtralForSequenceClassification),
    "qwen2-moe": (hf.Qwen2MoeConfig, QWEN_EXPERTS, hf.Qwen2MoeForSequenceClassification),
    "qwen3-moe": (hf.Qwen3MoeConfig, QWEN_EXPERTS, hf.Qwen3MoeForSequenceClassification),
}
"""Families for the balanced backward passes, besides FAMILIES: relative positions, capped logits, experts."""
WITHOUT_SDPA = ("deberta-v2", "mpnet", "t5", "t5-gated", "gemma2")
THREE_TOKENS = {"input_ids": torch.ones(1, 3).long()}


def randomised(network, seed=1):
    """Set random weights, large enough that every layer matters, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in network.named_parameters():
        scale = 0.25 if parameter.dim() > 1 else 0.1
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * scale
        centre = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
        with torch.no_grad():
            parameter.copy_(noise + centre)
    return network


def _definition(family):
    return FAMILIES[family] if family in FAMILIES else BALANCED_FAMILIES[family]


def network(family="bert", *, attention="sdpa", dtype=torch.float64, seed=1, network_class=None, **changes):
    """Return a network of a family; `network_class` replaces its class, and `changes` are of its configuration."""
    config_class, options, default_class = _definition(family)
    config = config_class(**{**options, **changes})
    config._attn_implementation = "eager" if family in WITHOUT_SDPA else attention
    # The fused product of all experts has no float64.
    config._experts_implementation = "eager" if dtype is torch.float64 else None
    return randomised((network_class or default_class)(config).to(dtype).eval(), seed)


def model(family="bert", **options):
    return clearhead.load(network(family, **options))


@cache
def shared_model(family):
    """Return the default tiny model of a family, made once: a trace leaves it as it was."""
    return model(family)


def tensors(family="bert", rows=3, length=9, seed=0):
    """Return a batch of random inputs; the second text is three tokens shorter than the rest."""
    generator = torch.Generator().manual_seed(seed)
    options = _definition(family)[1]
    if "image_size" in options or family == "clip":
        return {"pixel_values": torch.randn(rows, 3, 32, 32, dtype=torch.float64, generator=generator)}
    ids = torch.randint(5, 60, (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    if rows > 1:
        ids[1, length - 3 :] = options["pad_token_id"]
        mask[1, length - 3 :] = 0
    return {"input_ids": ids, "attention_mask": mask}


def alone(batch, row):
    """Return one row of a batch, without its padding."""
    if "pixel_values" in batch:
        return {"pixel_values": batch["pixel_values"][row : row + 1]}
    length = int(batch["attention_mask"][row].sum())
    return {name: value[row : row + 1, :length] for name, value in batch.items()}


def text_model(**options):
    """Return a tiny BERT that reads text, with labels."""
    id2label = {0: "negative", 1: "neutral", 2: "positive"}
    label2id = {label: index for index, label in id2label.items()}
    settings = {"id2label": id2label, "label2id": label2id, **options}
    return clearhead.load(network("bert", **settings), word_piece_tokenizer())


def image_processor(side=32, **options):
    return hf.ViTImageProcessorPil(size={"height": side, "width": side}, **options)


def image_model(**options):
    return clearhead.load(network("vit", **options), image_processor())


def _widened(network_class, config):
    """Return a network whose initial weights are four times as large, so that classes differ visibly."""
    torch.manual_seed(0)
    network = network_class(config)
    for parameter in network.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(4)
    return network.double().eval()


def bert(layers=3, labels=3):
    config = hf.BertConfig(**{**TEXT, "num_hidden_layers": layers, "num_labels": labels})
    return Model(_widened(hf.BertForSequenceClassification, config), plot_tokenizer(), name="tiny-bert")


def answering_bert():
    config = hf.BertConfig(**{**TEXT, "num_hidden_layers": 2, "num_labels": 2, "max_position_embeddings": 512})
    return Model(_widened(hf.BertForQuestionAnswering, config), plot_tokenizer(), name="tiny-answers")


def llama():
    return Model(_widened(hf.LlamaForSequenceClassification, hf.LlamaConfig(**ROTARY)), name="tiny-llama")


def lonely_gpt():
    """Return a decoder without a padding token, which takes one input at a time."""
    config = hf.GPT2Config(vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=64, num_labels=3)
    return Model(_widened(hf.GPT2ForSequenceClassification, config), name="tiny-gpt")


def vit():
    config = hf.ViTConfig(**{**IMAGE, "image_size": 24})
    return Model(_widened(hf.ViTForImageClassification, config), image_processor(24), name="tiny-vit")

"""Tiny models that read pictures among the words of a prompt, with their processors, for tests."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import transformers
from helpers.language_models import GROUPED, make_tokenizer
from PIL import Image

from clearhead.model.answer_inputs import answer_prompt, encode_prompt

IMAGE = "<image>"
TILES = [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
MARKUP = [IMAGE, "<video>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", *TILES]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
VISION = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
# A larger deviation of the weights than by default, so that attention is not uniform.
DEVIATION = 0.2


def picture_tokenizer(image_token: str = IMAGE) -> Any:
    """Return the tokenizer of `make_tokenizer` with the tokens that stand for pictures."""
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": list(dict.fromkeys([image_token, *MARKUP]))})
    tokenizer.chat_template = None
    return tokenizer


def make_picture(width: int = 32, height: int = 32, *, seed: int = 0, colour: int | None = None) -> Image.Image:
    """Return a picture of coloured noise, or of one grey."""
    if colour is not None:
        return Image.new("RGB", (width, height), (colour,) * 3)
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3))
    return Image.fromarray(values.astype(np.uint8))


@dataclass(frozen=True)
class Family:
    """How a tiny model of a family is made, and its processor, if that can be had."""

    network: str
    configure: Callable[[Any], Any]
    process: Callable[[Any], Any] | None = None


def _size(side: int) -> dict[str, int]:
    return {"height": side, "width": side}


def _text_config(name: str, tokenizer: Any, **settings: Any) -> Any:
    config_type = getattr(transformers, f"{name}Config")
    tokens = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    return config_type(vocab_size=len(tokenizer), max_position_embeddings=512, **{**GROUPED, **tokens, **settings})


def _vision_config(name: str, **settings: Any) -> Any:
    return getattr(transformers, f"{name}VisionConfig")(**{**VISION, "image_size": 16, "patch_size": 4, **settings})


def _image_id(tokenizer: Any) -> int:
    number: int = tokenizer.convert_tokens_to_ids(IMAGE)
    return number


def _configure_llava(tokenizer: Any, name: str = "Llava", **settings: Any) -> Any:
    config_type = getattr(transformers, f"{name}Config")
    return config_type(
        vision_config=_vision_config("CLIP"),
        text_config=_text_config("Llama", tokenizer),
        image_token_index=_image_id(tokenizer),
        image_token_id=_image_id(tokenizer),
        **{"vision_feature_layer": -1, **settings},
    )


def _process_llava(tokenizer: Any) -> Any:
    images = transformers.CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size=_size(16))
    return transformers.LlavaProcessor(
        images,
        tokenizer,
        patch_size=4,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    )


PINPOINTS = [[16, 32], [32, 16], [32, 32]]


def _process_llava_next(tokenizer: Any) -> Any:
    images = transformers.LlavaNextImageProcessorPil(
        size={"shortest_edge": 16}, crop_size=_size(16), image_grid_pinpoints=PINPOINTS
    )
    return transformers.LlavaNextProcessor(
        images,
        tokenizer,
        patch_size=4,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    )


def _configure_qwen(tokenizer: Any, name: str = "Qwen2VL") -> Any:
    vision = {"depth": 2, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 1}
    sizes = {"embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2}
    if name == "Qwen2_5_VL":
        sizes = {"hidden_size": 16, "out_hidden_size": 32, "intermediate_size": 24, "window_size": 8}
        sizes["fullatt_block_indexes"] = [1]
    text = {**GROUPED, "vocab_size": len(tokenizer), "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    text["rope_parameters"] = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    return getattr(transformers, f"{name}Config")(
        text_config=text,
        vision_config={**vision, **sizes},
        image_token_id=_image_id(tokenizer),
        video_token_id=tokenizer.convert_tokens_to_ids("<video>"),
    )


def _qwen_images() -> Any:
    return transformers.Qwen2VLImageProcessorPil(
        patch_size=4, temporal_patch_size=1, merge_size=2, size={"shortest_edge": 64, "longest_edge": 1024}
    )


def qwen_tensors(tokenizer: Any, pictures: list[Image.Image], text: str) -> dict[str, torch.Tensor]:
    """Return what the processor of Qwen2-VL returns, which needs torchvision."""
    images = _qwen_images()(images=pictures, return_tensors="pt")
    for grid in images["image_grid_thw"]:
        text = text.replace(IMAGE, "<placeholder>" * (int(grid.prod()) // 4), 1)
    words = tokenizer(text.replace("<placeholder>", IMAGE), return_tensors="pt")
    types = (words["input_ids"] == _image_id(tokenizer)).long()
    return {**words, **images, "mm_token_type_ids": types}


def _configure_idefics(tokenizer: Any, name: str = "Idefics3") -> Any:
    return getattr(transformers, f"{name}Config")(
        vision_config=_vision_config(name).to_dict(),
        text_config=_text_config("Llama", tokenizer),
        image_token_id=_image_id(tokenizer),
        scale_factor=2,
        pad_token_id=1,
    )


def _process_idefics(tokenizer: Any) -> Any:
    images = transformers.Idefics3ImageProcessorPil(size={"longest_edge": 32}, max_image_size={"longest_edge": 16})
    return transformers.Idefics3Processor(images, tokenizer, image_seq_len=4, chat_template=CHAT_TEMPLATE)


def _configure_paligemma(tokenizer: Any) -> Any:
    text = _text_config("Gemma", tokenizer)
    return transformers.PaliGemmaConfig(
        vision_config=_vision_config("Siglip", projection_dim=32, vision_use_head=False),
        text_config=text,
        image_token_index=_image_id(tokenizer),
        image_token_id=_image_id(tokenizer),
        projection_dim=32,
        hidden_size=32,
    )


def _configure_gemma3(tokenizer: Any) -> Any:
    return transformers.Gemma3Config(
        vision_config=_vision_config("Siglip", vision_use_head=False),
        text_config=_text_config("Gemma3Text", tokenizer, sliding_window=64, query_pre_attn_scalar=8),
        image_token_index=_image_id(tokenizer),
        mm_tokens_per_image=4,
    )


def gemma3_tensors(tokenizer: Any, pictures: list[Image.Image], text: str) -> dict[str, torch.Tensor]:
    """Return what the processor of Gemma 3 returns, without the tokens that enclose a picture."""
    images = transformers.SiglipImageProcessorPil(size=_size(16))(images=pictures, return_tensors="pt")
    words = tokenizer(text.replace(IMAGE, IMAGE * 4), return_tensors="pt")
    types = (words["input_ids"] == _image_id(tokenizer)).long()
    return {**words, **images, "token_type_ids": types}


def _process_paligemma(tokenizer: Any) -> Any:
    images = transformers.SiglipImageProcessorPil(size=_size(16))
    images.image_seq_length = 16
    return transformers.PaliGemmaProcessor(images, tokenizer, chat_template=CHAT_TEMPLATE)


FAMILIES = {
    "llava": Family("LlavaForConditionalGeneration", _configure_llava, _process_llava),
    "llava-next": Family(
        "LlavaNextForConditionalGeneration",
        partial(_configure_llava, name="LlavaNext", image_grid_pinpoints=PINPOINTS),
        _process_llava_next,
    ),
    "vipllava": Family(
        "VipLlavaForConditionalGeneration",
        partial(_configure_llava, name="VipLlava", vision_feature_layers=[-1, -2]),
        _process_llava,
    ),
    "qwen2-vl": Family("Qwen2VLForConditionalGeneration", _configure_qwen),
    "qwen2.5-vl": Family("Qwen2_5_VLForConditionalGeneration", partial(_configure_qwen, name="Qwen2_5_VL")),
    "gemma3": Family("Gemma3ForConditionalGeneration", _configure_gemma3),
    "idefics3": Family("Idefics3ForConditionalGeneration", _configure_idefics, _process_idefics),
    # Its processor needs packages that tests do without; that of Idefics3 prepares the same tensors.
    "smolvlm": Family("SmolVLMForConditionalGeneration", partial(_configure_idefics, name="SmolVLM"), _process_idefics),
    "paligemma": Family("PaliGemmaForConditionalGeneration", _configure_paligemma, _process_paligemma),
}


def make_picture_model(family: str, *, seed: int = 0) -> tuple[Any, Any]:
    """Return a tiny network with random weights, in float64, and its processor."""
    made = FAMILIES[family]
    tokenizer = picture_tokenizer()
    network_type = getattr(transformers, made.network)
    torch.manual_seed(seed)
    network = network_type(made.configure(tokenizer)).double().eval()
    _spread_weights(network)
    return network, made.process(tokenizer) if made.process else tokenizer


def _spread_weights(network: Any) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() > 1:
                weight.normal_(std=DEVIATION, generator=generator)


def process_prompt(model: Any, pictures: list[Image.Image], text: str) -> Any:
    """Return a prompt as `explain` takes it: with tensors where the family's processor cannot be had."""
    if model.picture_processor is not None:
        return pictures, text
    prepare = gemma3_tensors if "Gemma3" in model.name else qwen_tensors
    return pictures, prepare(model.processor, pictures, text)


def separate_patches(network: Any) -> None:
    """Let every part of a picture be seen by itself: no attention, no positions, in the vision tower."""
    for name, weight in network.named_parameters():
        is_vision = "vision" in name or "visual" in name
        if is_vision and any(part in name for part in ("out_proj", "fc2", "attn.proj", "down_proj", "position_emb")):
            weight.data.zero_()


def paint_cell(picture: Image.Image, box: Any, grid: tuple[int, int], cell: tuple[int, int]) -> Image.Image:
    """Return the picture with one cell of a grid over a box in red."""
    left, top, right, bottom = box
    height = (bottom - top) / grid[0]
    width = (right - left) / grid[1]
    painted = picture.copy()
    corner = (round(left + cell[1] * width), round(top + cell[0] * height))
    painted.paste((255, 0, 0), (*corner, corner[0] + round(width), corner[1] + round(height)))
    return painted


def plant_bright_part(model: Any, prompt: Any, answer: str) -> None:
    """Let the logit of an answer be what the part of a picture that differs most from the others adds to it."""
    row = answer_prompt(model, encode_prompt(model, prompt), answer, {})
    network = model.network.language_model
    for name, weight in network.named_parameters():
        # Uniform attention, and no layers of neurons in the decoder.
        if "vision" not in name and ("q_proj" in name or "mlp" in name):
            weight.data.zero_()
    tokens = list(row.item.pictures[0].tokens)
    parts = row.values["inputs_embeds"][tokens]
    difference = parts - parts.mean(0)
    strongest = difference[difference.norm(dim=-1).argmax()]
    attention = network.get_decoder().layers[0].self_attn
    grouped = attention.v_proj(strongest).reshape(-1, attention.head_dim)
    heads = grouped.repeat_interleave(attention.num_key_value_groups, 0)
    network.lm_head.weight.data.zero_()
    network.lm_head.weight.data[row.item.answer.ids[0]] = attention.o_proj(heads.flatten()).detach()

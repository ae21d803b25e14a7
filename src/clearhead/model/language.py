"""Language models: a network that returns logits for the tokens of an answer only."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.model.picture_layout import LAYOUTS

ANSWER_POSITIONS = "answer_positions"
"""The input tensor (B,N) that tells at which positions the network predicts the answer's tokens."""
SOURCE_LENGTH = "source_length"
"""The input tensor (B,1) that tells how many of the tokens an encoder reads; the decoder reads the others."""
CAUSAL_ENDINGS = ("ForCausalLM", "LMHeadModel")
SEQUENCE_ENDINGS = ("ForConditionalGeneration", "Seq2SeqLM", "MTModel")


def is_causal_lm(network: Any) -> bool:
    """Return whether a network is a decoder that continues a text."""
    if not _is_named(network, CAUSAL_ENDINGS):
        return False
    return not _has_both_stacks(network.config) and not reads_both_ways(network.config)


def is_encoder_decoder(network: Any) -> bool:
    """Return whether a network has an encoder that reads a text and a decoder that writes another."""
    if not _is_named(network, SEQUENCE_ENDINGS):
        return False
    return _reads_text(network) and _has_both_stacks(network.config)


def is_picture_reader(network: Any) -> bool:
    """Return whether a network is a decoder that reads image tokens among the words of a prompt."""
    return _is_named(network, SEQUENCE_ENDINGS) and network.config.model_type in LAYOUTS


def _is_named(network: Any, endings: tuple[str, ...]) -> bool:
    # By its class, because a config does not tell with which head a network was loaded.
    return type(network).__name__.endswith(endings)


def _reads_text(network: Any) -> bool:
    # Speech and images are read by encoders too.
    return bool(getattr(network, "main_input_name", "input_ids") == "input_ids")


def _has_both_stacks(config: Any) -> bool:
    return bool(getattr(config, "is_encoder_decoder", False))


def encoder_decoder_architectures() -> dict[str, str]:
    """Return the encoder–decoders of Transformers that write text, by the model type of their config."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES

    return dict(MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)


def picture_architectures() -> set[str]:
    """Return the architectures of Transformers that write text about pictures."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    return set(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.values())


def wrap_language_model(network: Any) -> Any:
    """Return a network whose output is the logits of an answer, or the network itself if it writes no text."""
    if is_causal_lm(network):
        return AnswerNetwork(network)
    if is_encoder_decoder(network):
        return EncoderDecoderNetwork(network)
    if is_picture_reader(network):
        return PictureNetwork(network)
    return network


def reads_both_ways(config: Any) -> bool:
    """Return whether a network with a language head reads in both directions, such as BertLMHeadModel by default."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    if config.model_type == "xlnet":
        return bool(config.attn_type == "bi")
    is_masked_lm = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return is_masked_lm and not getattr(config, "is_decoder", False)


class AnswerNetwork(nn.Module):
    """A stock language model, unmodified, whose output is reduced to the logits of an answer's tokens (B,N,V)."""

    main_input_name = "input_ids"

    def __init__(self, language_model: Any) -> None:
        super().__init__()
        self.language_model = language_model
        self.config = language_model.config
        self.train(language_model.training)

    def get_input_embeddings(self) -> Any:
        return self.language_model.get_input_embeddings()

    def forward(self, input_ids: Tensor, answer_positions: Tensor, attention_mask: Tensor, **tensors: Tensor) -> Tensor:
        """Return logits at `answer_positions`; a head over a large vocabulary is not applied to the prompt."""
        mask = _unmask_end(attention_mask)
        return self._predict(answer_positions, input_ids=input_ids, attention_mask=mask, **tensors)

    def _predict(self, answer_positions: Tensor, attention_mask: Tensor, **tensors: Tensor) -> Tensor:
        # A batch of different prompts needs the positions from the first answer on.
        first = int(answer_positions.min())
        count = attention_mask.shape[1] - first
        logits = self._run(count, attention_mask=attention_mask, **tensors)
        return _select_positions(logits, answer_positions - first)

    def resume(self, new_ids: Tensor, answer_positions: Tensor, cache: Any, starts: Tensor) -> Tensor:
        """Return logits at `answer_positions` of rows whose first tokens are in a cache (B,N,V).

        `starts` (B) tells how many tokens of each row the cache has, after padding on the left; `new_ids` are the
        others, padded on the right. Their keys and values are added to the cache.
        """
        tensors = {"input_ids": new_ids, "attention_mask": _mask_left(starts, cache.get_seq_length(), new_ids)}
        if self.takes("position_ids"):
            tensors["position_ids"] = _number_tokens(starts, new_ids.shape[1])
        positions = answer_positions - starts[:, None]
        first = int(positions.min())
        logits = self._run(new_ids.shape[1] - first, **tensors, past_key_values=cache)
        return _select_positions(logits, positions - first)

    def _run(self, count: int, **arguments: Any) -> Tensor:
        """Return the logits of the last `count` positions."""
        # Without a cache to fill, keys and values would be kept but never read.
        options: dict[str, Any] = {"use_cache": "past_key_values" in arguments, "return_dict": True}
        if self.takes("logits_to_keep"):
            options["logits_to_keep"] = count
        logits: Tensor = self.language_model(**arguments, **options).logits
        return logits[:, -count:]

    def takes(self, argument: str) -> bool:
        """Return whether the language model's forward pass has an argument."""
        return argument in inspect.signature(self.language_model.forward).parameters


def make_prefix_cache(network: AnswerNetwork) -> Any | None:
    """Return an empty cache of keys and values that can be cut anywhere, None if the network has no such cache."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    # An encoder's tokens read what follows them.
    if isinstance(network, EncoderDecoderNetwork) or not network.takes("past_key_values"):
        return None
    cache = DynamicCache(config=network.config)
    # Sliding windows and recurrent states forget what was before.
    if any(type(layer) is not DynamicLayer for layer in cache.layers):
        return None
    return cache


class EncoderDecoderNetwork(AnswerNetwork):
    """A stock encoder–decoder, unmodified, that takes the source and the decoder's input joined along the tokens.

    `source_length` tells where the source ends, and `answer_positions` count from its first token.
    """

    @property
    def word_tables(self) -> list[Any]:
        """The embedding tables of the encoder and of the decoder, often the same."""
        stacks = (self.language_model.get_encoder(), self.language_model.get_decoder())
        return list(map(_find_word_table, stacks))

    def forward(self, input_ids: Tensor, answer_positions: Tensor, attention_mask: Tensor, **tensors: Tensor) -> Tensor:
        """Return logits at `answer_positions`."""
        # The same for all rows, because sources are padded.
        source = int(tensors[SOURCE_LENGTH][0, 0])
        logits: Tensor = self.language_model(
            input_ids=input_ids[:, :source],
            attention_mask=attention_mask[:, :source],
            decoder_input_ids=input_ids[:, source:],
            decoder_attention_mask=attention_mask[:, source:],
            use_cache=False,
            return_dict=True,
        ).logits
        return _select_positions(logits, answer_positions - source)


def _find_word_table(stack: Any) -> Any:
    # The stacks of FSMT are plain modules.
    if hasattr(stack, "get_input_embeddings"):
        return stack.get_input_embeddings().weight
    return stack.embed_tokens.weight


class PictureNetwork(AnswerNetwork):
    """A stock decoder, unmodified, that reads pictures among words.

    A prompt with pictures is given by what enters the decoder, the embeddings of words and image tokens
    (`inputs_embeds`), and by the positions that the model gives to its tokens, if they are not plain numbers (B,T,3).
    """

    def __init__(self, language_model: Any) -> None:
        super().__init__(language_model)
        # Sizes and limits are those of the decoder.
        self.config = language_model.config.get_text_config()

    def forward(  # type: ignore[override]
        self,
        answer_positions: Tensor,
        attention_mask: Tensor,
        input_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        **tensors: Tensor,
    ) -> Tensor:
        """Return logits at `answer_positions`, from the ids of a prompt without pictures, or from `inputs_embeds`."""
        if input_ids is not None:
            return super().forward(input_ids, answer_positions, attention_mask, **tensors)
        if position_ids is not None:
            tensors["position_ids"] = position_ids.permute(2, 0, 1)
        # The end of a row stays masked: in some models the words of a prompt see each other in both directions.
        return self._predict(answer_positions, attention_mask, **tensors)


@contextmanager
def keep_positions(network: Any) -> Iterator[None]:
    """Restore what Qwen2-VL remembers of the positions in the last prompt, so that the model stays as it was."""
    # The decoder and what surrounds it are one module in older versions of Transformers.
    inner = getattr(network, "model", network)
    kept = getattr(inner, "rope_deltas", None)
    try:
        yield
    finally:
        if hasattr(inner, "rope_deltas"):
            inner.rope_deltas = kept


def _number_tokens(starts_B: Tensor, count: int) -> Tensor:
    return starts_B[:, None] + torch.arange(count)


def _mask_left(starts_B: Tensor, width: int, new_ids: Tensor) -> Tensor:
    """Return the mask of cached and new tokens; padding at the end is visible to what follows it only."""
    past_BT = torch.arange(width) >= width - starts_B[:, None]
    return torch.cat([past_BT.long(), torch.ones_like(new_ids)], 1)


def _unmask_end(mask_BT: Tensor) -> Tensor:
    """Return a mask that leaves the padding at the end of a row visible.

    A decoder's tokens never see what follows them, so nothing changes for them. If it were masked, padding far behind
    the last real token would see nothing at all through a sliding window, and give NaN.
    """
    reversed_BT = mask_BT.long().flip(1)
    is_end_BT = (reversed_BT.cumsum(1) == 0).flip(1)
    return mask_BT.masked_fill(is_end_BT, 1)


def _select_positions(logits_BKV: Tensor, positions_BN: Tensor) -> Tensor:
    # The common case of one prompt: every position that was computed is wanted, and nothing has to be copied.
    if _are_all(positions_BN, logits_BKV.shape[1]):
        return logits_BKV
    index_BNV = positions_BN[..., None].expand(-1, -1, logits_BKV.shape[-1])
    return torch.gather(logits_BKV, 1, index_BNV)


def _are_all(positions_BN: Tensor, count: int) -> bool:
    position_N = torch.arange(count, device=positions_BN.device)
    return torch.equal(positions_BN, position_N.expand(len(positions_BN), -1))

"""Encoder–decoders by plain autograd: scores from embeddings, and attention maps with their gradients.

Shares nothing with the engine but the tokens it is given.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass
class Reference:
    """One source and answer: token ids, and the positions of the decoder's input that the answer is predicted from."""

    network: object
    source: Tensor
    decoder: Tensor
    answer: Tensor
    first: int

    @classmethod
    def of(cls, model, explanation) -> "Reference":
        """Read the ids of an explanation whose whole answer is explained."""
        ids = model.processor.convert_tokens_to_ids(list(explanation.tokens))
        length = explanation.prompt_length
        answer = torch.tensor([explanation.target.tokens])
        decoder = torch.tensor([ids[length:]])
        first = decoder.shape[1] - answer.shape[1]
        return cls(model.network.language_model, torch.tensor([ids[:length]]), decoder, answer, first)

    def with_eager_copy(self, network) -> "Reference":
        """The same tokens for a copy of the network, frozen and with eager attention."""
        network.requires_grad_(False)
        network.set_attn_implementation("eager")
        return replace(self, network=network)

    @property
    def scale(self) -> float:
        """What the word embeddings of the source are multiplied by; a decoder scales what it is given itself."""
        is_scaled = getattr(self.network.config, "scale_embedding", False)
        return self.network.config.d_model**0.5 if is_scaled else 1.0

    def embed(self) -> tuple[Tensor, Tensor]:
        """The word embeddings of both sequences, as leaves."""
        stacks = (self.network.get_encoder(), self.network.get_decoder())
        leaves = []
        for stack, ids in zip(stacks, (self.source, self.decoder), strict=True):
            weight = stack.get_input_embeddings().weight
            leaves.append(weight[ids].detach().requires_grad_())
        return tuple(leaves)

    def run(self, leaves: tuple[Tensor, Tensor], **options):
        source, decoder = leaves
        return self.network(
            inputs_embeds=source * self.scale, decoder_inputs_embeds=decoder, use_cache=False, **options
        )

    def log_probabilities(self, output) -> Tensor:
        """log p of each token of the answer."""
        steps = output.logits[0, self.first :].log_softmax(-1)
        return steps.gather(1, self.answer.T)[:, 0]


def attention_products(reference: Reference, step: int) -> list[list[Tensor]]:
    """(∇A ⊙ A)⁺, averaged over heads, of the encoder's, the decoder's and the cross maps for one step."""
    output = reference.run(reference.embed(), output_attentions=True)
    kinds = [output.encoder_attentions, output.decoder_attentions, output.cross_attentions]
    maps = [attention for kind in kinds for attention in kind]
    score = reference.log_probabilities(output)[step]
    gradients = torch.autograd.grad(score, maps, allow_unused=True)
    products = []
    for attention, gradient in zip(maps, gradients, strict=True):
        products.append((attention * gradient).clamp(min=0).mean(1)[0].detach())
    count = len(products) // 3
    return [products[:count], products[count : 2 * count], products[2 * count :]]


def generic_attention(encoder: list[Tensor], decoder: list[Tensor], cross: list[Tensor], row: int) -> Tensor:
    """One row of R^qi and R^qq − I by the rules of Chefer et al. 2021, written out."""
    relevance_ii = torch.eye(len(encoder[0]), dtype=encoder[0].dtype)
    for weights in encoder:
        relevance_ii = relevance_ii + weights @ relevance_ii
    relevance_qq = torch.eye(len(decoder[0]), dtype=encoder[0].dtype)
    relevance_qi = torch.zeros_like(cross[0])
    for own, other in zip(decoder, cross, strict=True):
        relevance_qi = relevance_qi + own @ relevance_qi
        relevance_qq = relevance_qq + own @ relevance_qq
        relevance_qi = relevance_qi + normalise(relevance_qq).T @ other @ normalise(relevance_ii)
    own_row = relevance_qq[row] - torch.eye(len(relevance_qq), dtype=relevance_qq.dtype)[row]
    return torch.cat([relevance_qi[row], own_row])


def normalise(relevance: Tensor) -> Tensor:
    """R̂ with rows that sum to one, plus the identity."""
    identity = torch.eye(len(relevance), dtype=relevance.dtype)
    extra = relevance - identity
    rows = []
    for row in extra:
        total = row.sum()
        rows.append(row / total if total > 0 else row * 0)
    return torch.stack(rows) + identity

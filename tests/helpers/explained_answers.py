"""Answers of a language model whose log-probability follows known weights of the prompt's words."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from helpers.language_models import make_tokenizer
from helpers.linear_models import Block
from torch import nn

from clearhead.answer_explanation import AnswerExplanation
from clearhead.attribution.method import parse_method
from clearhead.data.task import Example, Writing
from clearhead.evaluation.explained import explain_examples
from clearhead.evaluation.metric import ExplainedExample, parse_metric
from clearhead.model.language import AnswerNetwork
from clearhead.model.model import Model

WEIGHTS = {"Ġcapital": 3.0, "Ġfrance": 2.0, "Ġriver": 1.0, "Ġlondon": -1.0, "Ġthe": 0.5, "Ġof": -0.25}
ANSWER = "Ġparis"
PROMPT = "in the capital of france the river london is"


class LinearForCausalLM(nn.Module):
    """The answer's logit is the sum of the weights of all tokens so far; all other logits are 0."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        self.config = SimpleNamespace(is_encoder_decoder=False, model_type="linear", pad_token_id=1, _name_or_path="")
        self.words = nn.Embedding(len(tokenizer), 1).double()
        self.words.weight.data.zero_()
        for token, weight in WEIGHTS.items():
            self.words.weight.data[tokenizer.convert_tokens_to_ids(token)] = weight
        self.answer = tokenizer.convert_tokens_to_ids(ANSWER)
        # Adds nothing, but only networks with attention are traced.
        self.block = Block()
        self.rows = 0

    def get_input_embeddings(self) -> nn.Embedding:
        return self.words

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: Any) -> Any:
        self.rows += len(input_ids)
        sums = (self.block(self.words(input_ids))[..., 0] * attention_mask).cumsum(1)
        logits = torch.zeros(*input_ids.shape, len(self.words.weight), dtype=sums.dtype)
        logits[..., self.answer] = sums
        return SimpleNamespace(logits=logits)


def linear_language_model() -> Model:
    tokenizer = make_tokenizer()
    return Model(AnswerNetwork(LinearForCausalLM(tokenizer)), tokenizer, name="linear")


def true_relevance(explanation: AnswerExplanation) -> np.ndarray:
    return np.array([WEIGHTS.get(token, 0.0) for token in explanation.tokens])


def explained_answer(
    model: Model,
    prompt: Any = PROMPT,
    *,
    relevance: Any = true_relevance,
    needs: tuple[str, ...] = ("answer",),
    gold: Any = None,
    **writing: Any,
) -> ExplainedExample:
    """Return an example whose explanations have the relevance that a function of the explanation returns."""
    example = Example("x", prompt, gold=gold, writing=Writing(**{"answer": "paris", **writing}))
    explained = explain_examples(model, [example], [parse_method("random")], needs)
    (case,) = explained.cases["random"]
    explanations = {name: _set(explanation, relevance) for name, explanation in case.explanations.items()}
    return replace(case, explanations=explanations)


def _set(explanation: AnswerExplanation, relevance: Any) -> AnswerExplanation:
    values = np.asarray(relevance(explanation), dtype=np.float64)
    if explanation.matrix is None:
        return replace(explanation, relevance=values)
    return replace(explanation, relevance=values, matrix=np.tile(values, (len(explanation.steps), 1)))


def record(name: str, model: Model, case: ExplainedExample) -> dict[str, Any]:
    (values,) = parse_metric(name).measure(model, [case])
    return values

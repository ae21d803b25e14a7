"""Log-probabilities of answers to prompts without some of their tokens."""

import numpy as np
import pytest
import torch
from helpers.language_models import DECODERS, make_decoder, make_tokenizer

import clearhead
from clearhead.errors import BadOption
from clearhead.model.answer_inputs import add_answer, encode_prompt, tokenise_answer
from clearhead.perturbation.answers import Ablation, answer_log_probs

PROMPT = "the capital of france is"
ANSWER = "paris and long"


def encode(model, prompt=PROMPT, answer=ANSWER):
    encoded = encode_prompt(model, prompt)
    return add_answer(model, encoded, tokenise_answer(model, encoded, answer))


def log_probs(model, prompt_ids, answer_ids):
    """Return the log-probability of each token, by the language model itself."""
    ids = torch.tensor([[*prompt_ids, *answer_ids]])
    with torch.no_grad():
        logits = model.network.language_model(ids).logits[0]
    scores = logits[len(prompt_ids) - 1 : -1].log_softmax(-1)
    return scores.gather(1, torch.tensor(answer_ids)[:, None])[:, 0].numpy()


@pytest.mark.parametrize("family", DECODERS)
def test_deleted_tokens_leave_the_shorter_prompt(family):
    model = clearhead.load(make_decoder(family), make_tokenizer())
    encoded = encode(model)
    answer = encoded.item.answer
    ids = encoded.values["input_ids"][: answer.start]
    masks = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [0, 1, 1, 1, 0], [1, 0, 0, 0, 0]], dtype=bool)
    steps = tuple(range(len(answer.ids)))
    ablations = [Ablation(encoded, np.append(mask, np.ones(len(steps) - 1)), steps) for mask in masks]
    for mask, scores in zip(masks, answer_log_probs(model, ablations), strict=True):
        kept = [token for token, is_kept in zip(ids, mask, strict=True) if is_kept]
        np.testing.assert_allclose(scores, log_probs(model, kept, answer.ids), rtol=1e-9)


def test_a_single_step_reads_what_precedes_it():
    model = clearhead.load(make_decoder("llama"), make_tokenizer())
    encoded = encode(model)
    answer = encoded.item.answer
    keep = np.ones(encoded.length, dtype=bool)
    # Without "of", and without the answer's first word.
    keep[[2, answer.start]] = False
    (scores,) = answer_log_probs(model, [Ablation(encoded, keep, (2,))])
    ids = encoded.values["input_ids"]
    prefix = [ids[index] for index in np.flatnonzero(keep)]
    np.testing.assert_allclose(scores, log_probs(model, prefix, answer.ids[2:]), rtol=1e-9)


def test_tokens_can_be_hidden_from_attention_instead():
    model = clearhead.load(make_decoder("llama"), make_tokenizer())
    encoded = encode(model)
    keep = np.ones(encoded.length, dtype=bool)
    keep[1] = False
    (hidden,) = answer_log_probs(model, [Ablation(encoded, keep, (0, 1, 2))], replacement="attention")
    tensors = {name: torch.tensor([values]) for name, values in encoded.values.items()}
    tensors["attention_mask"] = torch.from_numpy(keep).long()[None]
    with torch.no_grad():
        scores = model.network(**tensors)[0].log_softmax(-1)
    expected = [float(scores[step, token]) for step, token in enumerate(encoded.item.answer.ids)]
    np.testing.assert_allclose(hidden, expected, rtol=1e-9)
    with pytest.raises(BadOption, match="replacement"):
        answer_log_probs(model, [Ablation(encoded, keep, (0,))], replacement="mask")

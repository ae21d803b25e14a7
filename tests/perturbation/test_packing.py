"""Short texts run end to end as one row: nothing changes but the tokens that a network computes."""

import pytest
import torch
from helpers.tiny_models import BALANCED_FAMILIES, FAMILIES, bert, model, network, tensors
from torch import nn

from clearhead.engine.context import eager_inference
from clearhead.perturbation import packing
from clearhead.perturbation.packing import run_packed
from clearhead.perturbation.run import perturbed_logits

TEXT = "a goodly film with no plot"
TEXT_FAMILIES = [
    family for family, (_, options, _) in (FAMILIES | BALANCED_FAMILIES).items() if "vocab_size" in options
]
SHORTENED = {"bert", "roberta", "xlm-r", "electra"}
PACKED = {*SHORTENED, "distilbert", "albert", "gpt2", "opt"}
MASKS = torch.tensor([[1, 0, 0, 0, 0, 0, 0], [1, 1, 1, 0, 1, 0, 1]]).bool()


def is_close(first, second):
    return torch.allclose(first, second, rtol=0, atol=1e-8)


def read_logits(output):
    return output.logits


def pack(tiny, batch):
    with eager_inference(tiny, torch.device("cpu")):
        return run_packed(tiny, batch, read_logits, is_close)


@pytest.fixture
def counted_tokens():
    """Count the tokens that the second block of a network reads."""
    counts = []

    def count(block):
        block.register_forward_hook(lambda module, args, out: counts.append(args[0].shape[:2].numel()))
        return counts

    return count


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_packing_changes_no_logits_and_padding_stays_possible(family):
    tiny = network(family)
    batch = tensors(family)
    with torch.no_grad():
        padded = tiny(**batch).logits
    for _ in range(2):
        packed = pack(tiny, batch)
        assert packed is None or is_close(packed, padded)
    stack = packing._STACKS[tiny]
    assert bool(stack.blocks) == (family in PACKED)
    assert stack.last_attention is not None or family not in SHORTENED
    with torch.no_grad():
        assert torch.equal(tiny(**batch).logits, padded)


def test_padding_is_not_computed(counted_tokens):
    tiny = network("bert")
    batch = tensors("bert")
    pack(tiny, batch)
    counts = counted_tokens(tiny.bert.encoder.layer[1])
    pack(tiny, batch)
    assert counts == [int(batch["attention_mask"].sum())]


def test_perturbed_texts_are_packed_and_give_what_single_texts_give(counted_tokens):
    tiny = bert()
    counts = counted_tokens(tiny.network.bert.encoder.layer[1])
    for _ in range(2):
        (packed,) = perturbed_logits(tiny, TEXT, [MASKS], replacement="delete")
    # The tokens of both texts: one and five pieces, and two special tokens each.
    assert counts[-1] == 10
    (single,) = perturbed_logits(tiny, TEXT, [MASKS], replacement="delete", batch_size=1)
    torch.testing.assert_close(packed, single, rtol=0, atol=1e-12)


def test_a_head_that_reads_all_tokens_gets_all_of_them():
    class MeanHead(nn.Module):
        def forward(self, hidden_RTC):
            return hidden_RTC.mean(1)

    tiny = network("bert")
    # The mean counts padding, so that packed texts differ: their padding is zero.
    tiny.bert.pooler = MeanHead()
    assert pack(tiny, tensors("bert")) is None
    assert not packing._STACKS[tiny].blocks


def test_answer_spans_are_packed_with_all_of_their_tokens():
    spans = network("bert", network_class=type(model("bert").network)).bert
    head = nn.Linear(32, 2).double()
    batch = tensors("bert")

    def read_masked(output):
        return head(output.last_hidden_state) * batch["attention_mask"][..., None]

    with eager_inference(spans, torch.device("cpu")):
        packed = run_packed(spans, batch, read_masked, is_close)
        assert is_close(packed, read_masked(spans(**batch)))
    assert packing._STACKS[spans].last_attention is None


def test_equal_logits_teach_nothing():
    tiny = network("bert")
    nn.init.zeros_(tiny.classifier.weight)
    assert pack(tiny, tensors("bert")) is None
    assert tiny not in packing._STACKS


def test_padding_on_the_left_is_not_packed():
    tiny = network("bert")
    batch = tensors("bert")
    assert pack(tiny, batch) is not None
    flipped = {name: tensor.flip(1) for name, tensor in batch.items()}
    assert pack(tiny, flipped) is None


def test_long_inputs_are_not_packed():
    lengths = torch.tensor([200, 100])
    assert not packing.worth_packing(lengths, bert())
    assert packing.worth_packing(lengths // 2, bert())
    assert not packing.worth_packing(torch.tensor([9, 9]), bert())

"""Short texts run end to end as one row: nothing changes but the tokens that a network computes."""

from types import SimpleNamespace

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
        return run_packed(tiny, batch, read_logits)


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
    stack = packing._FINDINGS[tiny].stack
    assert bool(stack.blocks) == (family in PACKED)
    assert stack.last_attention is not None or family not in SHORTENED
    with torch.no_grad():
        assert torch.equal(tiny(**batch).logits, padded)


def test_padding_is_not_computed(counted_tokens):
    tiny = network("bert")
    batch = tensors("bert")
    counts = counted_tokens(tiny.bert.encoder.layer[1])
    pack(tiny, batch)
    counts.clear()
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


def require_padded(tiny, batch):
    """Require the logits of the network itself."""
    with torch.no_grad():
        assert is_close(pack(tiny, batch), tiny(**batch).logits)


class GatedPooler(nn.Module):
    """Reads the first token, and the second as far as a gate is open."""

    def __init__(self, gate):
        super().__init__()
        self.gate = nn.Parameter(torch.tensor(gate, dtype=torch.float64))

    def forward(self, hidden_RTC):
        return hidden_RTC[:, 0] + self.gate * hidden_RTC[:, 1]


def test_a_head_that_has_learned_to_read_more_tokens_gets_them():
    tiny = network("bert")
    tiny.bert.pooler = GatedPooler(0.0)
    require_padded(tiny, tensors("bert"))
    assert packing._FINDINGS[tiny].stack.last_attention is not None
    with torch.no_grad():
        tiny.bert.pooler.gate.fill_(1)
    for _ in range(2):
        require_padded(tiny, tensors("bert"))


def test_a_head_that_is_replaced_gets_its_tokens():
    tiny = network("bert")
    for gate in (0.0, 1.0):
        tiny.bert.pooler = GatedPooler(gate)
        for _ in range(2):
            require_padded(tiny, tensors("bert"))


def test_errors_of_small_logits_are_seen():
    tiny = bert()
    tiny.network.bert.pooler = GatedPooler(0.03)
    tiny.network.float()
    with torch.no_grad():
        tiny.network.classifier.weight.mul_(0.01)
        tiny.network.classifier.bias.zero_()
    for _ in range(2):
        (packed,) = perturbed_logits(tiny, TEXT, [MASKS], replacement="delete")
    (single,) = perturbed_logits(tiny, TEXT, [MASKS], replacement="delete", batch_size=1)
    torch.testing.assert_close(packed, single, rtol=1e-3, atol=0)


class MaskedBlock(nn.Module):
    def forward(self, hidden_RTC, mask):
        scores = hidden_RTC @ hidden_RTC.mT + mask[:, 0]
        return hidden_RTC + scores.softmax(-1) @ hidden_RTC


class ManyMasks(nn.Module):
    """Blocks with a mask of their own each, which is freed when the block has run."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(99, 4, dtype=torch.float64)
        self.layers = nn.ModuleList(MaskedBlock() for _ in range(4))

    def forward(self, input_ids, attention_mask, token_type_ids=None):
        hidden_RTC = self.embedding(input_ids)
        for number, layer in enumerate(self.layers):
            hidden_RTC = layer(hidden_RTC, self.make_mask(attention_mask, number))
        return SimpleNamespace(logits=hidden_RTC[:, 0])

    def make_mask(self, attention_mask, number):
        hidden_R11T = (1 - attention_mask[:, None, None].double()) * -1e9
        # A strength of attention to the first token that differs from block to block.
        first_T = torch.arange(attention_mask.shape[1]) == 0
        return hidden_R11T + number * first_T


def test_every_block_gets_its_own_mask():
    many = ManyMasks()
    for _ in range(2):
        require_padded(many, tensors("bert"))
    assert packing._FINDINGS[many].stack.blocks


def test_a_head_that_reads_all_tokens_gets_all_of_them():
    class MeanHead(nn.Module):
        def forward(self, hidden_RTC):
            return hidden_RTC.mean(1)

    tiny = network("bert")
    # The mean counts padding, so that packed texts differ: their padding is zero.
    tiny.bert.pooler = MeanHead()
    require_padded(tiny, tensors("bert"))
    assert not packing._FINDINGS[tiny].stack.blocks


def test_answer_spans_are_packed_with_all_of_their_tokens():
    spans = network("bert", network_class=type(model("bert").network)).bert
    head = nn.Linear(32, 2).double()
    batch = tensors("bert")

    def read_masked(output):
        return head(output.last_hidden_state) * batch["attention_mask"][..., None]

    with eager_inference(spans, torch.device("cpu")):
        packed = run_packed(spans, batch, read_masked)
        assert is_close(packed, read_masked(spans(**batch)))
    assert packing._FINDINGS[spans].stack.last_attention is None


def test_equal_logits_teach_nothing():
    tiny = network("bert")
    nn.init.zeros_(tiny.classifier.weight)
    require_padded(tiny, tensors("bert"))
    assert tiny not in packing._FINDINGS


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

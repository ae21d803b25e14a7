"""Long inputs: block by block gives what the whole trace gives."""

import pytest
import torch
from tiny import FAMILIES, network, tensors
from tiny import shared_model as model

import clearhead
from clearhead.blockwise import capture_blockwise
from clearhead.errors import UnsupportedModel
from clearhead.method import spelled

clearhead.methods()
WHOLE = [family for family in FAMILIES if family != "swin"]


@pytest.mark.parametrize("family", WHOLE)
def test_block_by_block_is_exact(family):
    batch = tensors(family)
    whole = spelled("trans-att")(clearhead.capture(model(family), batch, [0, 1, 2]))
    blocks = spelled("trans-att")(capture_blockwise(model(family), batch, [0, 1, 2]))
    torch.testing.assert_close(blocks.relevance_BT, whole.relevance_BT, rtol=1e-9, atol=1e-12)
    for one, other in zip(blocks.diagnostics, whole.diagnostics, strict=True):
        assert one["conservation_gap"] == pytest.approx(other["conservation_gap"], abs=1e-9)
        assert one["dropped"] == pytest.approx(other["dropped"], abs=1e-9)

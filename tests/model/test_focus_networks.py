"""Networks with many outputs, reduced to the part that is explained."""

import pytest
import torch
from helpers.tiny_models import network

from clearhead.model.focus_networks import PixelNetwork, TokenNetwork


def test_the_mean_of_tokens_has_the_precision_of_the_logits():
    logits_BTC = torch.randn(1, 5, 3, dtype=torch.float64)
    focus_BT = torch.tensor([[0, 1, 1, 1, 0]])
    ours = TokenNetwork(network("bert")).select(logits_BTC, focus_BT)
    torch.testing.assert_close(ours, logits_BTC[:, 1:4].mean(1), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.bfloat16, 0.02)])
def test_the_mean_of_pixels_has_the_precision_of_the_logits(dtype, tolerance):
    logits_BCPQ = torch.rand(1, 2, 30, 31, dtype=dtype)
    focus_BPQ = torch.ones(1, 30, 31, dtype=torch.long)
    ours = PixelNetwork(network("bert")).select(logits_BCPQ, focus_BPQ)
    torch.testing.assert_close(ours, logits_BCPQ.double().mean((2, 3)).to(dtype), rtol=tolerance, atol=tolerance)

"""Which tokens of the last hidden state a network's head reads."""

import torch.nn.functional as F
from torch import Tensor

from clearhead.engine.forward import ForwardPass
from clearhead.engine.lrp.linear import READING
from clearhead.engine.lrp.propagation import RelevancePass
from clearhead.engine.seeds import Seeds
from clearhead.engine.sequence_passes import PairForwardPass


def read_head(forward: ForwardPass, seeds: Seeds) -> Tensor:
    """Return what the head reads of each token of the last hidden state, as weights that sum to one (B,T)."""
    weights_BT = _trace_head(forward, seeds).abs()
    weights_BT = weights_BT / weights_BT.sum(1, keepdim=True)
    if not isinstance(forward, PairForwardPass):
        return weights_BT
    # The head reads the second sequence.
    return F.pad(weights_BT, (forward.leaf.shape[1] - weights_BT.shape[1], 0))


def _trace_head(forward: ForwardPass, seeds: Seeds) -> Tensor:
    """Return the transposed weights of the head at the last hidden state, summed over features (B,T)."""
    last = forward.hidden_states[-1]
    # A pass of its own, which stops at the last hidden state.
    reading = RelevancePass(forward.tape, READING, forward.output, seeds.unsigned_sum.to(last.dtype))
    reading.keep(last, lambda relevance: relevance.sum(-1))
    return reading.at(last)

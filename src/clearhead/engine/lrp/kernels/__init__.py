"""Triton kernels of the relevance rules.

This package is the only one that imports Triton; `dispatch` decides when its kernels run. Samples are the outermost
axis, and arithmetic is done in the dtype of the relevance. The relevance that 0/0 drops is stored as partial sums, one
per program, which are added up later: atomic additions would depend on the order in which programs run.
"""

from clearhead.engine.lrp.kernels.attention import share_attention_value, share_query_key
from clearhead.engine.lrp.kernels.elementwise import (
    divide,
    divide_by_positive_part,
    gated_mean,
    log_sum,
    multiply_by_sign,
    split_by_sign,
    split_sum,
)
from clearhead.engine.lrp.kernels.linear import scale_per_unit, share_inputs

__all__ = [
    "divide",
    "divide_by_positive_part",
    "gated_mean",
    "log_sum",
    "multiply_by_sign",
    "scale_per_unit",
    "share_attention_value",
    "share_inputs",
    "share_query_key",
    "split_by_sign",
    "split_sum",
]

"""The kernels that rules ask for, by name; imported by `dispatch` alone, where Triton is installed."""

from clearhead.engine.lrp.kernels.attention import share_attention_value, share_query_key
from clearhead.engine.lrp.kernels.coefficients import activation_coefficient, norm_coefficient
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
    "activation_coefficient",
    "divide",
    "divide_by_positive_part",
    "gated_mean",
    "log_sum",
    "multiply_by_sign",
    "norm_coefficient",
    "scale_per_unit",
    "share_attention_value",
    "share_inputs",
    "share_query_key",
    "split_by_sign",
    "split_sum",
]

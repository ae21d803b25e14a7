"""Triton kernels of the relevance rules. The one place that imports Triton; `fused` says when these serve, and where.

Samples lie outermost, and arithmetic is done in the type of the relevance. What 0/0 takes is summed per part of a
sample, and added up later, so that results do not depend on the order in which programs run.
"""

from clearhead.engine.lrp.kernels.attention import mixed, weighed
from clearhead.engine.lrp.kernels.elementwise import by_sign, gated_mean, halves, log_sum, positive, quotient, split
from clearhead.engine.lrp.kernels.linear import per_unit, to_inputs

__all__ = [
    "by_sign",
    "gated_mean",
    "halves",
    "log_sum",
    "mixed",
    "per_unit",
    "positive",
    "quotient",
    "split",
    "to_inputs",
    "weighed",
]

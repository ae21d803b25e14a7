"""Triton kernels of the relevance rules.

This package is the only one that imports Triton; `dispatch` decides when its kernels run, and imports without Triton.
Samples are the outermost axis, and arithmetic is done in the dtype of the relevance. The relevance that 0/0 drops is
stored as partial sums, one per program, which are added up later: atomic additions would depend on the order in which
programs run.
"""

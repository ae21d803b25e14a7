"""Metrics, one module per question, with bootstrap intervals and permutation tests of their values."""

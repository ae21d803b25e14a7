"""Metrics, one module per question, with intervals and paired tests of their values."""

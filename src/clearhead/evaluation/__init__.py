"""Metrics, one module per question, with the statistics that make their values believable."""

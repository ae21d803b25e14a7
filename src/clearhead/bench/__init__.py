"""Benchmarks: plans, resumable runs, summaries and reports."""

"""Readers of tasks, one module per family of data sets."""

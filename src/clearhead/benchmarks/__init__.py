"""The papers' tables and figures as data: which methods, which metrics; the model and the data are yours to name."""

from clearhead.benchmark import BENCHMARKS
from clearhead.benchmarks import attcat, decoded, transatt  # noqa: F401  registers them
from clearhead.registry import answers

__all__ = ["BENCHMARKS"]

answers(__name__, lambda: BENCHMARKS)

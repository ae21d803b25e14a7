"""Benchmark: a table or figure of a paper as data, and the registry of them."""

from dataclasses import dataclass

from clearhead.registry import Registry


@dataclass(frozen=True)
class Benchmark:
    """A table or figure of a paper: the methods and metrics it compares, and the data it needs."""

    name: str
    title: str
    data: str
    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    methods_across: bool = False

    @property
    def summary(self) -> str:
        return f"{self.title}. Data: {self.data}."


BENCHMARKS: Registry[Benchmark] = Registry(
    "benchmark",
    modules=(
        "clearhead.bench.papers.attcat",
        "clearhead.bench.papers.decoded",
        "clearhead.bench.papers.transatt",
    ),
)


def benchmarks() -> Registry[Benchmark]:
    """Return the papers' tables and figures by name."""
    return BENCHMARKS


def register(*entries: Benchmark) -> None:
    """Add benchmarks to the registry."""
    for benchmark in entries:
        BENCHMARKS.add(benchmark.name, benchmark)

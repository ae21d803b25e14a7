"""What a benchmark is: a table or figure of a paper, as data."""

from dataclasses import dataclass

from clearhead.registry import Registry


@dataclass(frozen=True)
class Benchmark:
    """A table or figure of a paper: what it compares, and on what kind of data."""

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
    """The papers' tables and figures by name."""
    return BENCHMARKS


def register(*several: Benchmark) -> None:
    for one in several:
        BENCHMARKS.add(one.name, one)

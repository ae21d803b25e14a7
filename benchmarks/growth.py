"""How time and memory grow with tokens, batch, layers and the number of methods, beside one forward + backward.

    python benchmarks/growth.py [--threads 2] [--repeats 3] [--out FILE]
    python benchmarks/growth.py --device cuda

Each series varies one of the four and leaves the others where `--fixed` says. The first three measure `trans-att`, the
last so many methods from one trace. Time is the median of interleaved rounds after a warm-up. Memory is the peak above
the level before the call: on a CPU of a fresh process for each figure, on a GPU what PyTorch allocated. Writes a table
for each series and a picture of all, with the same name and the ending .svg.
"""

import argparse
import math
import platform
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, lru_cache
from pathlib import Path
from statistics import median

import torch
import transformers
from plots import Plot, Row, figure
from yardstick import FIFTEEN, Tensors, Work, apart, batch, bert, command, forward_backward, highest, in_turn, ratios

import clearhead

FIRST = (
    "trans-att",
    "att-cat",
    "rollout",
    "gradient-x-input",
    "att-grads",
    "attention-gradcam",
    "cat",
    "layer-gradcam",
)
METHODS = (*FIRST, *(name for name in FIFTEEN if name not in FIRST))
PLAIN, OURS = "forward + backward", "Clearhead"
AXES = {"tokens": "tokens", "batch": "inputs in the batch", "layers": "layers", "methods": "methods from one trace"}
SIZES = {
    "cpu": {"tokens": (64, 128, 256, 512, 1024), "batch": (1, 2, 4, 8), "layers": (1, 2, 4, 8, 16)},
    "cuda": {"tokens": (64, 128, 256, 512, 1024, 2048), "batch": (1, 4, 16, 64, 256), "layers": (1, 2, 4, 8, 16, 32)},
}
COUNTS = (1, 2, 4, 8, len(METHODS))
FIXED = {"cpu": (128, 1, 12), "cuda": (128, 8, 12)}


@dataclass(frozen=True)
class Size:
    """One setting to measure."""

    tokens: int
    batch: int
    layers: int
    methods: int
    hidden: int
    device: str


@dataclass(frozen=True)
class Point:
    """What was measured at one size: forward + backward first, Clearhead second."""

    value: int
    seconds: tuple[float, float]
    ratio: float
    memory: tuple[float, float]

    def __str__(self) -> str:
        (base, ours), (low, high) = self.seconds, self.memory
        cells = (f"{base:.3g}", f"{ours:.3g}", f"{self.ratio:.2f}", f"{low:.0f}", f"{high:.0f}", f"{high / low:.2f}")
        return f"| {self.value} | {' | '.join(cells)} |"


@lru_cache(maxsize=1)
def model(layers: int, positions: int, hidden: int, device: str, head: bool) -> clearhead.Model:
    return bert(positions, blocks=layers, hidden=hidden, device=device, head=head)


def work(size: Size, inputs: Tensors) -> dict[str, Work]:
    names = METHODS[: size.methods]
    explained = model(size.layers, max(512, size.tokens), size.hidden, size.device, "decoded-gradcam" in names)
    rows = len(inputs["input_ids"])
    return {
        PLAIN: lambda: forward_backward(explained, inputs),
        OURS: lambda: clearhead.compare(explained, inputs, names, 0, batch_size=rows, check=False),
    }


def peak(size: Size, name: str) -> float:
    """Mebibytes for one piece of work, whose code a small input has warmed; less than one is noise."""
    work(size, batch(1, 16, size.device))[name]()
    return max(1.0, highest(work(size, batch(size.batch, size.tokens, size.device))[name], size.device))


@cache
def memory(size: Size, name: str) -> float:
    return apart(peak, size, name) if size.device == "cpu" else peak(size, name)


def measured(size: Size, value: int, repeats: int) -> Point:
    times = in_turn(work(size, batch(size.batch, size.tokens, size.device)), repeats, size.device)
    both = memory(replace(size, methods=1), PLAIN), memory(size, OURS)
    return Point(value, (median(times[PLAIN]), median(times[OURS])), median(ratios(times)[OURS]), both)


def series(options: argparse.Namespace, axis: str, fixed: Size) -> Iterator[Point]:
    for value in getattr(options, axis):
        point = measured(replace(fixed, **{axis: value}), value, options.repeats)
        print(axis, point, flush=True)
        yield point


def table(axis: str, points: list[Point]) -> str:
    name = f"{OURS}, so many methods" if axis == "methods" else "trans-att"
    head = f"| {axis} | {PLAIN} s | {name} s | × | {PLAIN} MiB | {name} MiB | × |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *map(str, points)])


def slope(points: list[Point], what: str, which: int) -> float:
    """The power of the size with which something grows between the last two points."""
    before, last = points[-2:]
    step = math.log(last.value / before.value)
    return math.log(getattr(last, what)[which] / getattr(before, what)[which]) / step


def said(axis: str, points: list[Point]) -> str:
    before, last = points[-2:]
    if axis == "methods":
        dearer, larger = last.seconds[1] / points[0].seconds[1], last.memory[1] / points[0].memory[1]
        return f"{last.value} methods take {dearer:.1f} times the time and {larger:.1f} times the memory of the first."
    (plain_time, time), (plain_space, space) = (
        [slope(points, what, which) for which in (0, 1)] for what in ("seconds", "memory")
    )
    return (
        f"From {before.value} to {last.value} time grows as the power {time:.2f} of the size ({PLAIN}: "
        f"{plain_time:.2f}), memory as {space:.2f} ({plain_space:.2f})."
    )


def picture(points_by_axis: dict[str, list[Point]], title: str, note: str) -> str:
    def plots(what: str) -> tuple[Plot, ...]:
        return tuple(
            Plot(
                AXES[axis],
                tuple(point.value for point in points),
                tuple(tuple(getattr(point, what)[which] for point in points) for which in (0, 1)),
            )
            for axis, points in points_by_axis.items()
        )

    rows = [Row("time, seconds", plots("seconds")), Row("peak memory, MiB", plots("memory"))]
    return figure(title, note, (PLAIN, f"{OURS}: trans-att, or so many methods"), rows)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=SIZES, default="cpu")
    for axis in ("tokens", "batch", "layers"):
        parser.add_argument(f"--{axis}", type=int, nargs="+", help=f"default: {SIZES['cpu'][axis]} on a CPU")
    parser.add_argument("--methods", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--fixed", type=int, nargs=3, metavar=("TOKENS", "BATCH", "LAYERS"), help="what does not vary")
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    for axis, sizes in SIZES[options.device].items():
        setattr(options, axis, getattr(options, axis) or sizes)
    options.fixed = options.fixed or FIXED[options.device]
    device_name = {"cpu": "cpu", "cuda": "gpu"}[options.device]
    options.out = options.out or Path(__file__).parent / "results" / f"{date.today()}-growth-{device_name}.md"
    return options


def main() -> None:
    options = parsed()
    torch.set_num_threads(options.threads)
    torch.backends.cuda.matmul.allow_tf32 = True
    fixed = Size(*options.fixed, 1, options.hidden, options.device)
    points_by_axis = {axis: list(series(options, axis, fixed)) for axis in AXES}
    where = f"{platform.machine()}, CPU threads: {options.threads}"
    if options.device == "cuda":
        where = f"{torch.cuda.get_device_name()}, tf32"
    shape = f"BERT with random weights, hidden size {options.hidden}, float32"
    at = f"where not varied: {fixed.tokens} tokens, batch {fixed.batch}, {fixed.layers} layers, trans-att"
    drawn = options.out.with_suffix(".svg")
    drawn.write_text(picture(points_by_axis, f"How time and memory grow ({where})", f"{shape}; {at}"))
    sections = [
        f"# How time and memory grow, {date.today()}",
        f"`{command()}`",
        f"{where}, torch {torch.__version__}, transformers {transformers.__version__}. {shape}; {at}. Time is the "
        f"median of {options.repeats} rounds, memory the peak above the level before the call.",
        f"![Time and memory over tokens, batch, layers and methods]({drawn.name})",
    ]
    for axis, points in points_by_axis.items():
        sections += [f"## {axis.capitalize()}", table(axis, points), said(axis, points)]
    sections.append(f"The methods, in the order in which they were added: {', '.join(METHODS)}.")
    options.out.write_text("\n\n".join(sections) + "\n")


if __name__ == "__main__":
    main()

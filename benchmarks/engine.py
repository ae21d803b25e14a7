"""Speed and memory of the engine on a CPU, as multiples of one forward + backward in the same run.

    python benchmarks/engine.py [--batch 8] [--tokens 128] [--threads 2] [--repeats 5] [--out FILE]

The yardstick is forward + backward to the embeddings, without parameter gradients, by the model as it is. Rounds are
interleaved, so that a busy machine disturbs all rows alike; medians of ratios are reported.
"""

import argparse
import platform
import statistics
from datetime import date
from pathlib import Path

import torch
import transformers
from captum.attr import LayerGradientXActivation, LayerIntegratedGradients
from yardstick import FIFTEEN, Work, apart, batch, bert, command, forward_backward, highest, in_turn, ratios, seconds

import clearhead

SLOW = "Captum LayerIntegratedGradients, 25 steps"


def captum_gradient(model: clearhead.Model, inputs: dict[str, torch.Tensor], steps: int | None) -> None:
    network = model.network

    def logits(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return network(input_ids=ids, attention_mask=mask).logits

    network.requires_grad_(True)
    layer = network.bert.embeddings
    arguments = {"target": 0, "additional_forward_args": (inputs["attention_mask"],)}
    if steps is None:
        LayerGradientXActivation(logits, layer).attribute(inputs["input_ids"], **arguments)
    else:
        size = len(inputs["input_ids"])
        LayerIntegratedGradients(logits, layer).attribute(
            inputs["input_ids"], n_steps=steps, internal_batch_size=size, **arguments
        )


def rows(model: clearhead.Model, inputs: dict[str, torch.Tensor]) -> dict[str, Work]:
    size = len(inputs["input_ids"])

    def compare(names: tuple[str, ...]) -> Work:
        return lambda: clearhead.compare(model, inputs, names, 0, batch_size=size, check=False)

    without = tuple(name for name in FIFTEEN if name not in ("lrp", "partial-lrp"))
    return {
        "forward + backward": lambda: forward_backward(model, inputs),
        "trans-att": compare(("trans-att",)),
        "att-cat": compare(("att-cat",)),
        "attn-lrp": compare(("attn-lrp",)),
        "compare, all fifteen": compare(FIFTEEN),
        "compare, without lrp and partial-lrp": compare(without),
        "Captum LayerGradientXActivation": lambda: captum_gradient(model, inputs, None),
        SLOW: lambda: captum_gradient(model, inputs, 25),
    }


def own_peak(name: str, size: int, tokens: int) -> float:
    model = bert(tokens)
    rows(model, batch(1, 16))[name]()
    return highest(rows(model, batch(size, tokens))[name])


def table(ratios_by_name: dict[str, list[float]], size: int, tokens: int, base_seconds: float) -> str:
    peaks = {name: apart(own_peak, name, size, tokens) for name in ratios_by_name}
    first = peaks["forward + backward"]
    lines = ["| work | × forward + backward | spread | peak memory × |", "|---|---|---|---|"]
    for name, values in ratios_by_name.items():
        spread = max(values) - min(values)
        lines.append(f"| {name} | {statistics.median(values):.2f} | {spread:.2f} | {peaks[name] / first:.2f} |")
    return "\n".join([*lines, "", f"One forward + backward took {base_seconds:.2f} s and {first:.0f} MiB."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("batch", 8), ("tokens", 128), ("threads", 2), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / f"{date.today()}-engine.md")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clearhead.methods()
    model, inputs = bert(options.tokens), batch(options.batch, options.tokens)
    work = rows(model, inputs)
    measured_ratios = ratios(in_turn(work, options.repeats, once=(SLOW,)))
    text = table(measured_ratios, options.batch, options.tokens, seconds(work["forward + backward"]))
    print(text, flush=True)
    sections = [
        f"# Engine on a CPU, {date.today()}",
        f"`{command()}`",
        f"{platform.machine()}, {options.threads} threads, torch {torch.__version__}, "
        f"transformers {transformers.__version__}. BERT-base shape, batch {options.batch}, {options.tokens} tokens, "
        "random weights, float32.",
        text,
    ]
    options.out.write_text("\n\n".join(sections) + "\n")


if __name__ == "__main__":
    main()

"""Where results contradict a paper: what changes when a definition does.

    python benchmarks/contradictions.py --data ../shared/data [--only attcat-signs …] [--limit 200] [--out FILE]

Each experiment repeats a table on an embedded model with definitions that the paper's numbers may come from: scores
without their sign, the authors' formula of a metric, layers without decoding, classes averaged. Values come with 95 %
intervals; the paired tests compare every method with the first of its table, corrected for all pairs of the table.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor
from towers import read_mask, spread
from yardstick import command

import clearhead
from clearhead.attribution.method import Attribution, method, parse_method
from clearhead.data.read import read_task
from clearhead.engine.context import frozen
from clearhead.engine.embeddings import logits_from
from clearhead.engine.trace import Trace
from clearhead.evaluation.evaluate import Table

SENTIMENT = "clearhead/sst2-minilm"
PHOTOS = "clearhead/pets-vit"
LAYERS = range(7)
AUTHORS_AOPC = "aopc:steps=9,first=1,absolute=true,target=label"
CONTROL = "random:seed=0"
"""One seed: the papers' tables have the mean of twenty."""
CLASS_STEP = 5
COVERAGE = "transatt-coverage"
COVERAGE_METHODS = ("rollout", "trans-att", "trans-att:weight=attention", "raw-attention", "partial-lrp")


@dataclass(frozen=True)
class Experiment:
    """A question about a table on SST-2, and the methods and metrics that answer it."""

    name: str
    question: str
    methods: Sequence[str]
    metrics: Sequence[str]


def register_unsigned(text: str) -> str:
    """Register a method without the sign of its scores, and return its name."""
    spec = parse_method(text)

    def compute(trace: Trace) -> Attribution:
        attribution = spec(trace)
        return replace(attribution, relevance_BT=attribution.relevance_BT.abs(), layers_BLT=None)

    compute.__name__ = f"unsigned_{spec.method.name}".replace("-", "_")
    method(paper=spec.method.paper, signed=False, class_specific=True, needs=spec.method.needs)(compute)
    return compute.__name__.replace("_", "-")


def register_loss_methods() -> tuple[str, str]:
    """Register gradients and integrated gradients as AllenNLP Interpret has them, and return their names.

    It takes the gradient of the loss of the predicted class, for integrated gradients at ten points that begin with the
    baseline, times the word embedding, without the sign.
    """

    def loss_gradient(trace: Trace) -> Attribution:
        return attribute_loss(trace, [1.0])

    def loss_integrated(trace: Trace) -> Attribution:
        return attribute_loss(trace, [step / 10 for step in range(10)])

    register = method(paper="Wallace et al. 2019", signed=False, class_specific=True, needs=())
    for compute in (loss_gradient, loss_integrated):
        register(compute)
    return "loss-gradient", "loss-integrated"


def attribute_loss(trace: Trace, shares: Sequence[float]) -> Attribution:
    """Return |gradient of the loss × word embedding|, the gradient averaged over shares of the embedding."""
    network = trace.model.network
    with torch.enable_grad(), frozen(network):
        gradients = [differentiate_loss(trace, share) for share in shares]
    return Attribution((torch.stack(gradients).mean(0) * trace.leaf).sum(-1).abs())


def differentiate_loss(trace: Trace, share: float) -> Tensor:
    point = (trace.leaf * share).requires_grad_()
    labels_B = torch.tensor([target.index for target in trace.targets])
    logits_BC = logits_from(trace.model, trace.inputs.tensors, point)
    loss = torch.nn.functional.cross_entropy(logits_BC, labels_B, reduction="sum")
    return torch.autograd.grad(loss, point)[0]


def register_order() -> str:
    """Register the order of the text as a method: all that is left where the gradient is read behind the blocks.

    There only the class token has one, and tokens of equal relevance stay in their order.
    """

    def text_order(trace: Trace) -> Attribution:
        return Attribution(-torch.arange(trace.mask_BT.shape[1], dtype=torch.float32).expand(trace.mask_BT.shape))

    method(paper="", signed=False, class_specific=False, needs=())(text_order)
    return "text-order"


def list_experiments() -> Iterator[Experiment]:
    grads, cat, att_cat = map(register_unsigned, ("grads", "cat", "att-cat"))
    integrated, product = map(register_unsigned, ("integrated-gradients:steps=10", "gradient-x-input"))
    yield Experiment(
        "attcat-signs",
        "AttCAT, Table 1: does the order of the methods change if scores lose their sign?",
        ["att-cat", att_cat, "cat", cat, "grads", grads, "trans-att", "raw-attention", CONTROL],
        ["aopc", "lodds"],
    )
    yield Experiment(
        "attcat-formula",
        "AttCAT, Table 1: does it change with the formulas of the authors' code?",
        ["att-cat", "att-cat:hidden=input", "cat", "cat:hidden=input", "grads", att_cat, grads, "trans-att", CONTROL],
        [AUTHORS_AOPC],
    )
    yield Experiment(
        "decoded-signs",
        "Decoded, Table 1: are integrated gradients as weak as in the paper if scores lose their sign?",
        [
            "integrated-gradients:steps=10",
            integrated,
            "gradient-x-input",
            product,
            "gradient",
            "decoded-gradcam:layer=4",
            CONTROL,
        ],
        ["revealing", "hiding"],
    )
    yield Experiment(
        "decoded-package",
        "Decoded, Table 1: are gradients as weak as in the paper with the definitions of the package that it used?",
        [
            "decoded-gradcam:layer=4",
            *register_loss_methods(),
            integrated,
            product,
            "gradient",
            register_order(),
            CONTROL,
        ],
        ["revealing", "hiding"],
    )
    yield Experiment(
        "decoded-layers",
        "Decoded, Figure 5: are layers near the output best because of decoding, or of their saliency?",
        [
            *(f"decoded-gradcam:layer={layer}" for layer in reversed(LAYERS)),
            *(f"layer-gradcam:layer={layer}" for layer in LAYERS),
        ],
        ["revealing", "hiding"],
    )


def run_experiment(experiment: Experiment, arguments: argparse.Namespace) -> list[str]:
    """Return the values of all methods, and what the tests show of their differences from the first."""
    model = clearhead.load(SENTIMENT)
    file = arguments.data / "sst2" / "dev.tsv"
    table = clearhead.evaluate(model, file, experiment.methods, experiment.metrics, limit=arguments.limit)
    return [f"## {experiment.question}", "", *format_table(table, experiment)]


def format_table(table: Table, experiment: Experiment) -> list[str]:
    p_values = read_p_values(table, experiment.methods[0])
    columns = [cell for metric in experiment.metrics for cell in (metric, "p")]
    lines = [f"| method | {' | '.join(columns)} |", "|:--|" + "--:|" * len(columns)]
    for name in experiment.methods:
        rows = [row for row in table.rows if row["method"] == name]
        cells = [cell for row in rows for cell in (format_value(row), p_values.get((name, row["metric"]), "–"))]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, "", f"{table.rows[0]['n']} sentences of SST-2 dev, {SENTIMENT}."]


def format_value(row: dict[str, Any]) -> str:
    return f"{row['value']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


def read_p_values(table: Table, reference: str) -> dict[tuple[str, str], str]:
    """Return the corrected p-value of every other method's difference from one, by method and metric."""
    p_values = {}
    for row in table.differences():
        pair = {row["first"], row["second"]}
        if reference in pair:
            (other,) = pair - {reference}
            p_values[other, row["metric"]] = format_p_value(row["p_corrected"])
    return p_values


def format_p_value(p_value: float) -> str:
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def measure_coverage(heat: Any, animal: Any) -> tuple[float, float]:
    """Return how much of the animal is above the mean of a map, and how much of what is above it is animal."""
    read = ~np.isnan(heat)
    above = (heat > heat[read].mean()) & read
    shared = (above & animal).sum()
    return shared / max(1, (animal & read).sum()), shared / max(1, above.sum())


def run_coverage(arguments: argparse.Namespace) -> list[str]:
    """Return how methods cover the animals of photos that the model gets right, and of those that it gets wrong."""
    model = clearhead.load(PHOTOS)
    examples = spread(read_task(arguments.data / "oxford_pets" / "test.parquet").examples, arguments.limit or 300)
    pictures = [example.raw for example in examples]
    animals = list(map(read_mask, examples))
    labels = [int(example.label) for example in examples]
    lines = [
        "## TransAtt, Table 2: why does rollout find more of the animal than trans-att?",
        "",
        "| map | covered, right | wrong | animal, right | wrong |",
        "|:--|--:|--:|--:|--:|",
    ]
    for name in COVERAGE_METHODS:
        explanations = clearhead.explain(model, pictures, name, check=False)
        is_right = np.array([explanation.target.index for explanation in explanations]) == labels
        maps = [explanation.heatmap() for explanation in explanations]
        lines.append(format_coverage(name, maps, animals, is_right))
    lines.append(format_coverage("trans-att, mean over 8 classes", average_classes(model, pictures), animals, is_right))
    return [*lines, "", f"{is_right.sum()} photos named rightly and {(~is_right).sum()} wrongly, {PHOTOS}."]


def average_classes(model: clearhead.Model, pictures: Sequence[Any]) -> list[Any]:
    """Return the mean of trans-att's maps over some classes, spread over all of them."""
    maps = [0.0] * len(pictures)
    for index in range(0, len(model.labels), CLASS_STEP):
        explained = clearhead.explain(model, pictures, "trans-att", index, check=False)
        maps = [total + explanation.heatmap() for total, explanation in zip(maps, explained, strict=True)]
    return maps


def format_coverage(name: str, maps: Sequence[Any], animals: Sequence[Any], is_right: Any) -> str:
    values_N2 = np.array(list(map(measure_coverage, maps, animals)))
    samples = [values_N2[chosen, column] for column in (0, 1) for chosen in (is_right, ~is_right)]
    return f"| {name} | {' | '.join(map(format_mean, samples))} |"


def format_mean(values_N: Any) -> str:
    """Return the mean with half of its 95 % interval; photos are many, so that the normal one holds."""
    return f"{values_N.mean():.3f} ± {1.96 * values_N.std(ddof=1) / len(values_N) ** 0.5:.3f}"


def read_arguments(names: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    parser.add_argument("--limit", type=int, help="examples of each experiment")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    experiments = list(list_experiments())
    arguments = read_arguments([*(experiment.name for experiment in experiments), COVERAGE])
    torch.set_num_threads(arguments.threads)
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    lines = [f"# Why results differ from the papers', {date.today()}", "", f"`{command()}`, {versions}."]
    for experiment in experiments:
        if experiment.name in arguments.only:
            lines += ["", *run_experiment(experiment, arguments)]
            print("\n".join(lines[-30:]), flush=True)
    if COVERAGE in arguments.only:
        lines += ["", *run_coverage(arguments)]
        print("\n".join(lines[-14:]), flush=True)
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

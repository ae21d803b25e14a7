"""Explanations of a language model's answer: Clearhead beside inseq, Captum and ContextCite, in one process.

    python benchmarks/generation_speed.py MODEL [--prompt 128] [--answer 32] [--threads 2] [--repeats 3] [--only WORD …]

The same decoder, prompt and answer for all. Rounds are interleaved, and medians of seconds are reported; with
`--cpu-time --threads 1` they are those of the process alone, so that other work on the machine counts less. A neighbour
that is not installed, or fails, gets a row that says why. They may be installed apart:
`pip install --no-deps --target FOLDER inseq context_cite …`, and PYTHONPATH=FOLDER.
"""

import argparse
import logging
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import transformers
from neighbours import version
from yardstick import command

import clearhead

TEXT = """Marie Curie was born in Warsaw in 1867. She moved to Paris to study physics at the Sorbonne. There she met
Pierre Curie, who worked on magnetism. Together they discovered polonium and radium in 1898. The Nobel committee
honoured them in 1903. In 1911 she received a second prize, in chemistry. During the war she drove mobile X-ray units to
the front. Her daughter Irene continued the work. The laboratory notebooks are still radioactive today. Visitors sign a
waiver to see them. Her husband died in a street accident in 1906. Which elements did she discover, and when?"""
PATH_STEPS = 4
ABLATIONS = 64
# inseq runs one forward pass for each token and step: all of them would take an hour.
OCCLUDED_STEPS = 1
# Captum runs the answer token by token for each part of the prompt: for each of its tokens it would take long.
OCCLUDED_PARTS = 16


@dataclass(frozen=True)
class Task:
    """A model with a prompt and an answer; `ids` are the tokens of both."""

    network: Any
    tokenizer: Any
    model: clearhead.Model
    prompt: str
    answer: str
    ids: list[int]
    start: int

    @property
    def steps(self) -> int:
        return len(self.ids) - self.start


@dataclass(frozen=True)
class Row:
    """Work that explains the answer; the row it is compared with, and the row that should give the same numbers.

    `share` is the part of the work that is done: its time is divided by it.
    """

    name: str
    work: Callable[[], np.ndarray | None]
    beside: str | None = None
    equals: str | None = None
    share: float = 1.0


def make_task(folder: str, prompt_tokens: int, answer_tokens: int) -> Task:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompt_ids = tokenizer(" ".join(TEXT.split()))["input_ids"][:prompt_tokens]
    lengths = {"min_new_tokens": answer_tokens, "max_new_tokens": answer_tokens}
    written = network.generate(input_ids=torch.tensor([prompt_ids]), do_sample=False, **lengths)[0].tolist()
    prompt, text = tokenizer.decode(prompt_ids), tokenizer.decode(written)
    # What the text gives, which may be other tokens than the model wrote: all packages read text.
    ids = tokenizer(text)["input_ids"]
    if ids[: len(prompt_ids)] != prompt_ids or tokenizer(prompt)["input_ids"] != prompt_ids:
        raise SystemExit("The text does not give the same tokens again: choose other lengths.")
    model = clearhead.load(network, tokenizer)
    return Task(network, tokenizer, model, prompt, text[len(prompt) :], ids, len(prompt_ids))


def list_own_rows(task: Task) -> Iterator[Row]:
    def explain(name: str, *, matrix: bool, **options: Any) -> Callable[[], np.ndarray]:
        def work() -> np.ndarray:
            explanation = clearhead.explain(
                task.model, task.prompt, name, answer=task.answer, matrix=matrix, check=False, **options
            )
            return explanation.matrix if matrix else explanation.relevance[None]

        return work

    yield Row("gradient-x-input, whole answer", explain("gradient-x-input", matrix=False, scale="logit"))
    yield Row("gradient-x-input, every step", explain("gradient-x-input", matrix=True, scale="logit"))
    yield Row("gradient-x-input of log p, every step", explain("gradient-x-input", matrix=True))
    yield Row("attn-lrp, whole answer", explain("attn-lrp", matrix=False))
    yield Row("attn-lrp, every step", explain("attn-lrp", matrix=True))
    path = {"steps": PATH_STEPS, "scale": "logit"}
    yield Row(f"integrated-gradients, {PATH_STEPS} steps", explain("integrated-gradients", matrix=False, **path))


def list_perturbation_rows(task: Task) -> Iterator[Row]:
    def explain(name: str, **options: Any) -> Callable[[], np.ndarray]:
        return lambda: clearhead.explain(
            task.model, task.prompt, name, answer=task.answer, check=False, **options
        ).relevance[None]

    yield Row("occlusion of every token of the prompt", explain("occlusion", prefix=False))
    yield Row(f"context-cite, {ABLATIONS} ablations", explain("context-cite", samples=ABLATIONS))


def list_inseq_rows(task: Task) -> Iterator[Row]:
    import inseq

    def row(method: str, beside: str, equals: str | None = None, steps: int = task.steps, **options: Any) -> Row:
        loaded = inseq.load_model(task.network, method, tokenizer=task.tokenizer)

        def work() -> np.ndarray:
            task.network.requires_grad_(True)
            text = task.tokenizer.decode(task.ids[: task.start + steps])
            output = loaded.attribute(task.prompt, text, attributed_fn="logit", show_progress=False, **options)
            scores = output.sequence_attributions[0].target_attributions.float().numpy()
            by_token = scores.sum(-1) if scores.ndim == 3 else scores
            return np.nan_to_num(by_token.T)[:, : len(task.ids) - 1]

        return Row(f"inseq {method}", work, beside, equals, share=steps / task.steps)

    every_step = "gradient-x-input, every step"
    yield row("input_x_gradient", every_step, every_step)
    yield row("integrated_gradients", f"integrated-gradients, {PATH_STEPS} steps", n_steps=PATH_STEPS)
    yield row("occlusion", "occlusion of every token of the prompt", steps=OCCLUDED_STEPS)


def list_captum_rows(task: Task) -> Iterator[Row]:
    from captum.attr import (
        FeatureAblation,
        LayerGradientXActivation,
        LayerIntegratedGradients,
        LLMAttribution,
        LLMGradientAttribution,
        TextTemplateInput,
        TextTokenInput,
    )

    tokens = TextTokenInput(task.prompt, task.tokenizer)

    def work(method: Any, prompt: Any = tokens, **options: Any) -> Callable[[], np.ndarray]:
        def attribute() -> np.ndarray:
            task.network.requires_grad_(True)
            # Captum joins texts without a blank, and adds special tokens to the answer unless it is given as ids.
            target = torch.tensor(task.ids[task.start :])
            result = method.attribute(prompt, target=target, **options)
            return result.token_attr.detach().float().numpy()

        return attribute

    words = task.network.get_input_embeddings()
    gradient = LLMGradientAttribution(LayerGradientXActivation(task.network, words), task.tokenizer)
    log_p = "gradient-x-input of log p, every step"
    yield Row("Captum LayerGradientXActivation", work(gradient), log_p, log_p)
    path = LLMGradientAttribution(LayerIntegratedGradients(task.network, words), task.tokenizer)
    path_row = f"integrated-gradients, {PATH_STEPS} steps"
    yield Row("Captum LayerIntegratedGradients", work(path, n_steps=PATH_STEPS), path_row)
    ablation = LLMAttribution(FeatureAblation(task.network), task.tokenizer)
    template = TextTemplateInput("{}" * OCCLUDED_PARTS, values=list_parts(task))
    # Both also run the prompt itself.
    share = (OCCLUDED_PARTS + 1) / (task.start + 1)
    occlusion = "occlusion of every token of the prompt"
    yield Row("Captum FeatureAblation", work(ablation, template), occlusion, share=share)


def list_parts(task: Task) -> list[str]:
    """Return the prompt in parts of about as many tokens."""
    parts = np.array_split(task.ids[: task.start], OCCLUDED_PARTS)
    return [task.tokenizer.decode(part.tolist()) for part in parts]


def list_context_cite_rows(task: Task) -> Iterator[Row]:
    from context_cite import ContextCiter
    from context_cite.context_partitioner import BaseContextPartitioner

    class Sentences(BaseContextPartitioner):
        """Sentences cut at full stops, which needs no download."""

        def __init__(self, context: str) -> None:
            super().__init__(context)
            self.parts = [f"{part}." for part in context.rstrip(".").split(". ")]

        num_sources = property(lambda self: len(self.parts))

        def split_context(self) -> None:
            pass

        def get_source(self, index: int) -> str:
            return self.parts[index]

        def get_context(self, mask: np.ndarray | None = None) -> str:
            keep = np.ones(len(self.parts), bool) if mask is None else mask
            return " ".join(part for part, kept in zip(self.parts, keep, strict=True) if kept)

    def work() -> None:
        citer = ContextCiter(
            task.network,
            task.tokenizer,
            context=task.prompt,
            query="",
            num_ablations=ABLATIONS,
            partitioner=Sentences(task.prompt),
        )
        # Instead of letting the model answer again.
        citer._cache["output"] = citer._get_prompt_ids(return_prompt=True)[1] + task.answer
        citer.get_attributions(verbose=False)

    yield Row(f"ContextCite, {ABLATIONS} ablations", work, f"context-cite, {ABLATIONS} ablations")


PACKAGES: dict[str, Callable[[Task], Iterable[Row]]] = {
    "Clearhead": list_own_rows,
    "Clearhead, perturbation": list_perturbation_rows,
    "inseq": list_inseq_rows,
    "captum": list_captum_rows,
    "context-cite": list_context_cite_rows,
}


@dataclass(frozen=True)
class Results:
    """Rows that ran, their numbers and seconds in each round, and for what did not run the reason."""

    clock: Callable[[], float]
    rows: dict[str, Row]
    scores: dict[str, np.ndarray | None]
    times: dict[str, list[float]]
    refused: dict[str, str]


def run_once(task: Task, words: list[str], clock: Callable[[], float]) -> Results:
    """Build and run every row in a first round."""
    results = Results(clock, {}, {}, {}, {})
    for package, build in PACKAGES.items():
        try:
            for row in build(task):
                if not words or any(word in row.name for word in words):
                    _try(row, results)
        except Exception as error:
            results.refused[package] = _describe(error)
    return results


def _try(row: Row, results: Results) -> None:
    try:
        start = results.clock()
        results.scores[row.name] = row.work()
        results.times[row.name] = [results.clock() - start]
        results.rows[row.name] = row
    except Exception as error:
        results.refused[row.name] = _describe(error)
    print(row.name, results.refused.get(row.name) or results.times[row.name], flush=True)


def run_again(results: Results, rounds: int) -> None:
    """Time all rows in turn, so that a busy machine disturbs all alike."""
    for _ in range(rounds):
        for name, row in results.rows.items():
            start = results.clock()
            row.work()
            results.times[name].append(results.clock() - start)


def _describe(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".replace("|", "/").split())[:200]


def find_difference(results: Results, row: Row) -> str:
    """Return the largest difference from the row that should give the same, over the largest value."""
    theirs, ours = results.scores[row.name], results.scores.get(row.equals or "")
    if theirs is None or ours is None:
        return "–"
    # Captum leaves out the answer's own earlier tokens.
    width = min(ours.shape[1], theirs.shape[1])
    return f"{np.abs(ours[:, :width] - theirs[:, :width]).max() / np.abs(ours).max():.0e}"


def make_table(results: Results) -> list[str]:
    times = {name: median(values) / results.rows[name].share for name, values in results.times.items()}
    lines = ["| work | seconds | × Clearhead's | largest difference |", "|---|---|---|---|"]
    for name, row in results.rows.items():
        ratio = f"{times[name] / times[row.beside]:.1f}" if row.beside in times else "–"
        lines.append(f"| {name} | {times[name]:.2f} | {ratio} | {find_difference(results, row)} |")
    lines += [f"| {name} | {reason} | – | – |" for name, reason in results.refused.items()]
    return lines


NOTES = """\
Clearhead's rows of gradients for the whole answer take one backward pass; inseq and Captum have no such way, and their
rows stand beside "every step". Gradients of every step need a backward pass for each step in all packages; Clearhead
saves the forward passes, and the head over the vocabulary. "×" is the time over that of Clearhead's row of the same
method. The largest difference is over the largest value. Paths have {steps} steps. Clearhead's is that of the whole
answer, the others' are of every step, and baselines differ, so their numbers are not compared. inseq's occlusion, where
it has a row, was run for {occluded} of the steps, and its time multiplied; so was Captum's FeatureAblation, which ran
for {parts} parts of the prompt. ContextCite puts its chat template around each prompt, so its rows are longer."""


def _quiet() -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a decoder")
    for name, default in {"prompt": 128, "answer": 32, "threads": 2, "repeats": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--only", nargs="*", default=[], help="rows whose names contain one of these words")
    parser.add_argument("--cpu-time", action="store_true", help="measure the time of the process")
    results_folder = Path(__file__).parent / "results"
    parser.add_argument("--out", type=Path, default=results_folder / f"{date.today()}-generation-speed.md")
    options = parser.parse_args()
    _quiet()
    torch.set_num_threads(options.threads)
    task = make_task(options.model, options.prompt, options.answer)
    clock = time.process_time if options.cpu_time else time.perf_counter
    results = run_once(task, options.only, clock)
    run_again(results, options.repeats - 1)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    sections = [
        f"# Explaining an answer on a CPU, {date.today()}",
        f"`{command().replace(options.model, 'MODEL')}`",
        f"{platform.machine()}, CPU threads: {options.threads} of {os.cpu_count()}, load average at the end {load}; "
        f"torch {torch.__version__}, transformers {transformers.__version__}, "
        f"{', '.join(map(version, ('inseq', 'captum', 'context-cite')))}. {Path(options.model).name}: prompt of "
        f"{task.start} tokens, answer of {task.steps}, float32; interleaved rounds: {options.repeats}, of which "
        f"medians are shown. Seconds are {'CPU time' if options.cpu_time else 'wall-clock time'}.",
        "\n".join(make_table(results)),
        NOTES.format(steps=PATH_STEPS, occluded=OCCLUDED_STEPS, parts=OCCLUDED_PARTS),
    ]
    options.out.write_text("\n\n".join(sections) + "\n")


if __name__ == "__main__":
    main()

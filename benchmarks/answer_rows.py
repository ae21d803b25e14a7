"""The work that generation_speed.py times: explanations of an answer by Clearhead, inseq, Captum and ContextCite."""

import copy
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers

import clearhead

TEXT = """Marie Curie was born in Warsaw in 1867. She moved to Paris to study physics at the Sorbonne. There she met
Pierre Curie, who worked on magnetism. Together they discovered polonium and radium in 1898. The Nobel committee
honoured them in 1903. In 1911 she received a second prize, in chemistry. During the war she drove mobile X-ray units to
the front. Her daughter Irene continued the work. The laboratory notebooks are still radioactive today. Visitors sign a
waiver to see them. Her husband died in a street accident in 1906. Which elements did she discover, and when?"""
PATH_STEPS = 4
ABLATIONS = 64
# Prompts that ContextCite runs at once: about as many as Clearhead's limits of tokens admit.
BATCHES = {"cpu": 8, "cuda": 64}


@dataclass(frozen=True)
class Settings:
    """The device, what ContextCite runs at once, and how much of their work the slowest neighbours do."""

    device: str
    batch: int
    occluded_steps: int
    occluded_parts: int


@dataclass(frozen=True)
class Task:
    """A model with a prompt and an answer; `ids` are the tokens of both."""

    settings: Settings
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

    `share` is the part of the work that is done: its time is divided by it. `prepare` is done before the clock starts.
    """

    name: str
    work: Callable[[], np.ndarray | None]
    beside: str | None = None
    equals: str | None = None
    share: float = 1.0
    prepare: Callable[[], object] = lambda: None


def make_task(folder: str, prompt_tokens: int, answer_tokens: int, settings: Settings) -> Task:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompt_ids = tokenizer(" ".join(TEXT.split()))["input_ids"][:prompt_tokens]
    lengths = {"min_new_tokens": answer_tokens, "max_new_tokens": answer_tokens}
    # On the CPU, so that every device explains the same answer.
    written = network.generate(input_ids=torch.tensor([prompt_ids]), do_sample=False, **lengths)[0].tolist()
    prompt, text = tokenizer.decode(prompt_ids), tokenizer.decode(written)
    # What the text gives, which may be other tokens than the model wrote: all packages read text.
    ids = tokenizer(text)["input_ids"]
    if ids[: len(prompt_ids)] != prompt_ids or tokenizer(prompt)["input_ids"] != prompt_ids:
        raise SystemExit("The text does not give the same tokens again: choose other lengths.")
    model = clearhead.load(network.to(settings.device), tokenizer)
    return Task(settings, network, tokenizer, model, prompt, text[len(prompt) :], ids, len(prompt_ids))


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
        # The device is given because inseq would move the model to a GPU wherever there is one.
        load = functools.cache(
            lambda: inseq.load_model(task.network, method, tokenizer=task.tokenizer, device=task.settings.device)
        )

        def work() -> np.ndarray:
            task.network.requires_grad_(True)
            text = task.tokenizer.decode(task.ids[: task.start + steps])
            output = load().attribute(task.prompt, text, attributed_fn="logit", show_progress=False, **options)
            scores = output.sequence_attributions[0].target_attributions.float().cpu().numpy()
            by_token = scores.sum(-1) if scores.ndim == 3 else scores
            return np.nan_to_num(by_token.T)[:, : len(task.ids) - 1]

        return Row(f"inseq {method}", work, beside, equals, share=steps / task.steps, prepare=load)

    every_step = "gradient-x-input, every step"
    yield row("input_x_gradient", every_step, every_step)
    yield row("integrated_gradients", f"integrated-gradients, {PATH_STEPS} steps", n_steps=PATH_STEPS)
    steps = min(task.settings.occluded_steps, task.steps)
    yield row("occlusion", "occlusion of every token of the prompt", steps=steps)


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
            return result.token_attr.detach().float().cpu().numpy()

        return attribute

    words = task.network.get_input_embeddings()
    gradient = LLMGradientAttribution(LayerGradientXActivation(task.network, words), task.tokenizer)
    log_p = "gradient-x-input of log p, every step"
    yield Row("Captum LayerGradientXActivation", work(gradient), log_p, log_p)
    path = LLMGradientAttribution(LayerIntegratedGradients(task.network, words), task.tokenizer)
    path_row = f"integrated-gradients, {PATH_STEPS} steps"
    yield Row("Captum LayerIntegratedGradients", work(path, n_steps=PATH_STEPS), path_row)
    ablation = LLMAttribution(FeatureAblation(task.network), task.tokenizer)
    parts = list_parts(task)
    template = TextTemplateInput("{}" * len(parts), values=parts)
    # Both also run the prompt itself.
    share = (len(parts) + 1) / (task.start + 1)
    occlusion = "occlusion of every token of the prompt"
    yield Row("Captum FeatureAblation", work(ablation, template), occlusion, share=share)
    at_once = work(ablation, template, forward_in_tokens=False)
    yield Row("Captum FeatureAblation, answer in one pass", at_once, occlusion, share=share)


def list_parts(task: Task) -> list[str]:
    """Return the prompt in parts of about as many tokens."""
    parts = np.array_split(task.ids[: task.start], min(task.settings.occluded_parts, task.start))
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

    # Batches need padding on the left, which Clearhead's rows should not see.
    tokenizer = copy.deepcopy(task.tokenizer)
    tokenizer.padding_side = "left"

    def cite(network: Any, batch: int) -> None:
        citer = ContextCiter(
            network,
            tokenizer,
            context=task.prompt,
            query="",
            num_ablations=ABLATIONS,
            batch_size=batch,
            partitioner=Sentences(task.prompt),
        )
        # Instead of letting the model answer again.
        citer._cache["output"] = citer._get_prompt_ids(return_prompt=True)[1] + task.answer
        citer.get_attributions(verbose=False)

    beside, batch = f"context-cite, {ABLATIONS} ablations", task.settings.batch
    yield Row(f"ContextCite, {ABLATIONS} ablations", lambda: cite(task.network, batch), beside)
    if task.settings.device == "cuda":
        network = WithoutAutocast(task.network)
        yield Row(f"ContextCite in float32, {ABLATIONS} ablations", lambda: cite(network, batch), beside)
    yield Row(f"ContextCite, {ABLATIONS} ablations, one at a time", lambda: cite(task.network, 1), beside)


class WithoutAutocast:
    """A network that computes in its own precision, also where ContextCite asks for float16."""

    def __init__(self, network: Any) -> None:
        self.network = network
        self.device = network.device

    def __call__(self, **inputs: torch.Tensor) -> Any:
        with torch.autocast("cuda", enabled=False):
            return self.network(**inputs)


PACKAGES: dict[str, Callable[[Task], Iterable[Row]]] = {
    "Clearhead": list_own_rows,
    "Clearhead, perturbation": list_perturbation_rows,
    "inseq": list_inseq_rows,
    "captum": list_captum_rows,
    "context-cite": list_context_cite_rows,
}

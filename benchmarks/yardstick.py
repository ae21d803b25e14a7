"""What the speed scripts share: models in the shape of BERT, their inputs, the plain pass that all is measured by."""

import ctypes
import gc
import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
import transformers

import clearhead

FIFTEEN = (
    *("raw-attention", "rollout", "grads", "att-grads", "attention-gradcam", "lrp", "partial-lrp", "trans-att"),
    *("cat", "att-cat", "layer-gradcam", "decoded-gradcam", "gradient", "gradient-x-input", "random"),
)
IMPORTED = ["clearhead", "torch", "transformers.models.bert.modeling_bert"]
Tensors = dict[str, torch.Tensor]
Work = Callable[[], object]


def command() -> str:
    """How the script was called, in the words of a user: without the place of its result."""
    script, *words = sys.argv
    while "--out" in words:
        index = words.index("--out")
        del words[index : index + 2]
    return " ".join(["python", f"benchmarks/{Path(script).name}", *words])


def bert(
    positions: int = 512, *, blocks: int = 12, hidden: int = 768, device: str = "cpu", head: bool = True
) -> clearhead.Model:
    """BERT with random weights and, unless told otherwise, in the shape of BERT-base and with a masked-LM head."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        num_labels=2,
        max_position_embeddings=max(512, positions),
        num_hidden_layers=blocks,
        hidden_size=hidden,
        num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
    )
    with torch.device(device):
        network = transformers.BertForSequenceClassification(config).eval()
        language = transformers.BertForMaskedLM(config).eval() if head else None
    return clearhead.load(network, lm_head=language)


def batch(size: int, tokens: int, device: str = "cpu") -> Tensors:
    ids = torch.randint(1000, 30000, (size, tokens), generator=torch.Generator().manual_seed(0)).to(device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def forward_backward(model: clearhead.Model, inputs: Tensors) -> None:
    """One plain pass forward and back to the word embeddings, without gradients of parameters."""
    network = model.network.requires_grad_(False)
    extra = {name: value for name, value in inputs.items() if name != "input_ids"}
    words = network.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()
    logits = network(inputs_embeds=words, **extra).logits
    torch.autograd.grad(logits[:, 0].sum(), words)


def seconds(work: Work, device: str = "cpu") -> float:
    gc.collect()
    synchronise(device)
    start = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - start


def in_turn(
    work: dict[str, Work], repeats: int, device: str = "cpu", once: tuple[str, ...] = ()
) -> dict[str, list[float]]:
    """Seconds of each piece of work, one after the other within a round, so that a busy machine disturbs all alike.

    A round that is not measured comes first. What `once` names takes part in the first measured round only.
    """
    times: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(repeats + 1):
        for name, call in work.items():
            if turn == 1 or name not in once:
                times[name].append(seconds(call, device))
    return {name: values if name in once else values[1:] for name, values in times.items()}


def ratios(times: dict[str, list[float]]) -> dict[str, list[float]]:
    """Times as multiples of the first row's, round by round."""
    first = next(iter(times.values()))
    return {name: [value / base for value, base in zip(values, first, strict=False)] for name, values in times.items()}


def highest(work: Work, device: str = "cpu") -> float:
    """Mebibytes that a piece of work needs above the level before it; on a CPU only a fresh process tells."""
    gc.collect()
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    ctypes.CDLL(None).malloc_trim(0)  # free memory goes back to the system, so that it counts when it is taken again
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the kernel's high-water mark starts anew
    work()
    return _resident("VmHWM") - before


def _resident(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def apart(measure: Callable[..., float], *arguments: object) -> float:
    """What a function of the script finds in a fresh process, forked where the libraries are imported already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    threads = torch.get_num_threads()
    with ProcessPoolExecutor(1, context, initializer=torch.set_num_threads, initargs=(threads,)) as pool:
        return pool.submit(measure, *arguments).result()


def synchronise(device: str) -> None:
    """Wait until the device has done what it was given, so that a clock counts it."""
    if device != "cpu":
        torch.cuda.synchronize()

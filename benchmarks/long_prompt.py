"""A long prompt on a decoder in the shape of Qwen2-0.5B: time and peak memory of an explanation.

    python benchmarks/long_prompt.py TOKENIZER [--tokens 8192] [--blocks 24] [--method gradient-x-input] [--threads 2]
    python benchmarks/long_prompt.py TOKENIZER --device cuda

Weights are random: neither time nor memory depends on them. TOKENIZER is the folder of any decoder's tokenizer.
"""

import argparse
import resource
import time

import torch
import transformers
from answer_rows import TEXT
from yardstick import synchronise

import clearhead

ANSWER = " Polonium and radium, in 1898."
KIBIBYTES_PER_GIBIBYTE = 2**20
BYTES_PER_GIBIBYTE = 2**30


def make_model(folder: str, blocks: int, device: str) -> clearhead.Model:
    """Return a decoder with the width of Qwen2-0.5B and some of its 24 blocks."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=blocks,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    return clearhead.load(transformers.Qwen2ForCausalLM(config).eval().to(device), tokenizer)


def make_prompt(model: clearhead.Model, tokens: int) -> str:
    text = " ".join(TEXT.split())
    length = len(model.processor(text)["input_ids"])
    ids = model.processor(" ".join([text] * (tokens // length + 1)))["input_ids"]
    prompt: str = model.processor.decode(ids[:tokens])
    return prompt


def measure_peak(device: str) -> float:
    """Return the largest memory of this process so far, or of its tensors on the GPU, in GiB."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / BYTES_PER_GIBIBYTE
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIBIBYTES_PER_GIBIBYTE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", help="folder of a tokenizer")
    for name, default in {"tokens": 8192, "blocks": 24, "threads": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--method", default="gradient-x-input")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = make_model(options.tokenizer, options.blocks, options.device)
    prompt = make_prompt(model, options.tokens)
    parameters = sum(parameter.numel() for parameter in model.network.parameters())
    if options.device == "cuda":
        # A first, short explanation compiles kernels.
        clearhead.explain(model, TEXT, options.method, answer=ANSWER, check=False)
        torch.cuda.reset_peak_memory_stats()
    before = measure_peak(options.device)
    synchronise(options.device)
    start = time.perf_counter()
    cpu_start = time.process_time()
    explanation = clearhead.explain(model, prompt, options.method, answer=ANSWER, check=False)
    synchronise(options.device)
    print(
        f"{options.method}, {options.blocks} blocks, {parameters / 1e6:.0f} M parameters, "
        f"{len(explanation.tokens)} tokens on {options.device}: {time.perf_counter() - start:.3g} s "
        f"(CPU time {time.process_time() - cpu_start:.0f} s), peak memory {measure_peak(options.device):.1f} GiB, "
        f"of which {before:.1f} before"
    )


if __name__ == "__main__":
    main()

"""Load on `clearhead serve`, on loopback only: errors, memory, method switches, batching; stops by itself.

python benchmarks/web.py --out benchmarks/results/DATE-web.md
"""

import argparse
import asyncio
import platform
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

HOST = "127.0.0.1"
WORDS = ["slow", "dull", "never", "funny", "film", "heart", "joy", "tedious", "story", "scene", "music", "a", "the"]
METHODS = ("trans-att", "att-cat", "rollout", "lrp", "attention-gradcam", "gradient-x-input")


def served(batch: int, port: int) -> None:
    """The server itself, in a process of its own."""
    from clearhead.web import server
    from clearhead.web.app import build_app
    from clearhead.web.limits import Limits

    listening = server.bind_socket(HOST, port)
    models = server.load_models(["clearhead/sst2-minilm"], allow_pickle=False, device=None)
    print(server.format_address(listening, server.access_policy(HOST, None)), flush=True)
    server.run(build_app(models, limits=Limits(max_batch=batch)), listening)


@contextmanager
def serving(batch: int):
    command = [sys.executable, __file__, "--server", str(batch)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(30)


def sentence(seed: int) -> str:
    """Twelve words, different for every request, so that nothing is answered from memory."""
    return " ".join(random.Random(seed).choices(WORDS, k=12)) + f" {seed}"


async def load(address: str, clients: int, requests: int, first: int) -> tuple[Counter[int], float, list[float]]:
    """Every client asks one question after the other; gives status counts, seconds, and latencies."""
    statuses: Counter[int] = Counter()
    latencies: list[float] = []

    async def ask(client: httpx.AsyncClient, number: int) -> None:
        for index in range(requests):
            begun = time.perf_counter()
            body = {"text": sentence(first + number * requests + index)}
            answer = await client.post(f"{address}api/explain", json=body)
            statuses[answer.status_code] += 1
            latencies.append(time.perf_counter() - begun)

    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(timeout=120, limits=limits) as client:
        begun = time.perf_counter()
        await asyncio.gather(*(ask(client, number) for number in range(clients)))
        return statuses, time.perf_counter() - begun, latencies


def switches(address: str, texts: int) -> tuple[list[float], list[float]]:
    """Seconds for another method of a text just asked: computed from its trace, and asked once more."""
    fresh, again = [], []
    with httpx.Client(timeout=60) as client:
        for seed in range(texts):
            text = sentence(10**7 + seed)
            client.post(f"{address}api/explain", json={"text": text, "method": "raw-attention"})
            for times in (fresh, again):
                for method in METHODS:
                    begun = time.perf_counter()
                    client.post(f"{address}api/explain", json={"text": text, "method": method}).raise_for_status()
                    times.append(time.perf_counter() - begun)
    return fresh, again


def measure(clients: int, requests: int) -> list[str]:
    lines = []
    with serving(batch=16) as (process, address):
        memory = psutil.Process(process.pid).memory_info
        asyncio.run(load(address, clients, 10, 10**6))
        fresh, again = switches(address, 20)
        lines.append(f"| cached method switch, computed from the trace | p50 {_p50(fresh)} ms, p95 {_p95(fresh)} ms |")
        lines.append(f"| the same method asked again | p50 {_p50(again)} ms |")
        marks = [memory().rss]
        counts: Counter[int] = Counter()
        seconds = 0.0
        for quarter in range(4):
            statuses, spent, latencies = asyncio.run(load(address, clients, requests // 4, quarter * 10**5))
            counts, seconds = counts + statuses, seconds + spent
            marks.append(memory().rss)
        lines.append(f"| {clients} clients × {requests} requests | {dict(counts)} |")
        lines.append(f"| latency in the last quarter | p50 {_p50(latencies)} ms, p95 {_p95(latencies)} ms |")
        lines.append(
            f"| memory before, then after each quarter | {', '.join(f'{mark / 2**20:.0f}' for mark in marks)} MB |"
        )
        together = sum(counts.values()) / seconds
    with serving(batch=1) as (_, address):
        asyncio.run(load(address, clients, 3, 10**6))
        statuses, spent, _ = asyncio.run(load(address, clients, max(5, requests // 20), 0))
        alone = sum(statuses.values()) / spent
    lines.append(f"| batches of up to 16 | {together:.1f} requests/s |")
    lines.append(f"| one at a time | {alone:.1f} requests/s, so batching gives {together / alone:.2f}× |")
    return lines


def _p50(times: list[float]) -> str:
    return f"{statistics.median(times) * 1000:.0f}"


def _p95(times: list[float]) -> str:
    return f"{statistics.quantiles(times, n=20)[-1] * 1000:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--server", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.server is not None:
        served(arguments.server, 0)
        return
    before = psutil.getloadavg()[0]
    lines = measure(arguments.clients, arguments.requests)
    heading = [
        f"# The page under load, {time.strftime('%Y-%m-%d')}",
        "",
        f"{psutil.cpu_count()} CPU cores ({platform.machine()}), load average {before:.1f} before;",
        "clearhead/sst2-minilm, texts of 13 words, all different, trans-att; clients and server on the same machine.",
        "Made by `benchmarks/web.py`.",
        "",
        "| what | measured |",
        "|---|---|",
    ]
    text = "\n".join([*heading, *lines, ""])
    print(text)
    if arguments.out:
        arguments.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()

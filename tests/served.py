"""A server in a process of its own, with tiny models, for tests that need a socket, a signal or a browser."""

import base64
import io
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image


def photo(size=(60, 40), kind="PNG", seed=0) -> bytes:
    """Coloured noise, the same for the same seed."""
    pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


@contextmanager
def serving(*arguments: str):
    """`clearhead serve` on a free port: yields the process and its address."""
    command = [sys.executable, "-u", "-m", "clearhead", "serve", "--no-open", "--port", "0", *arguments]
    source = str(Path(__file__).parents[1] / "src")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + process.stderr.read()
        yield process, found.group()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def save_run(folder: Path, model: Path) -> Path:
    """A finished run of `clearhead bench` on six sentences."""
    from clearhead.cli import main

    sentences = [
        "a good film",
        "never a bad film",
        "tedious , bad film",
        "a heart",
        "good , never tedious",
        "bad heart",
    ]
    table = folder / "task.tsv"
    table.write_text("label\tsentence\n" + "".join(f"{n % 2}\t{text}\n" for n, text in enumerate(sentences)), "utf-8")
    command = ["bench", "--task", str(table), "--model", str(model), "--methods", "att-cat,rollout"]
    try:
        main([*command, "--metrics", "aopc", "--out", str(folder / "my-run")])
    except SystemExit as left:
        assert left.code == 0
    return folder / "my-run"

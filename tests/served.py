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

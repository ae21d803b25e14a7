"""A server in a process of its own, with tiny models, for tests that need a socket, a signal or a browser."""

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.pictures import make_photo

pytest.importorskip("fastapi", reason="the page needs clearhead[web]")


@contextmanager
def start_server(*arguments: str):
    """Run `clearhead serve` on a free port; yield the process and its address."""
    command = [sys.executable, "-u", "-m", "clearhead", "serve", "--no-open", "--port", "0", *arguments]
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        line = process.stdout.readline()
        address = re.search(r"http://\S+", line)
        assert address, line + process.stderr.read()
        yield process, address.group()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def save_run(folder: Path, model: Path) -> Path:
    """Write a run of `clearhead bench` on six sentences; return its folder."""
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
    return _run(table, model, "aopc", folder / "my-run")


def save_photo_run(folder: Path, model: Path) -> tuple[Path, Path]:
    """Write a run on four photos in a folder per class; return the folders of the run and of its data."""
    for number in range(4):
        file = folder / "pets" / ("cat", "dog")[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(make_photo(seed=number))
    return _run(folder / "pets", model, "positive-perturbation", folder / "photo-run"), folder / "pets"


def _run(task: Path, model: Path, metric: str, out: Path) -> Path:
    from clearhead.cli import main

    command = ["bench", "--task", str(task), "--model", str(model), "--methods", "att-cat,rollout"]
    try:
        main([*command, "--metrics", metric, "--out", str(out)])
    except SystemExit as exit_error:
        assert exit_error.code == 0
    return out

"""Arguments at random, and model folders damaged at random: never a traceback."""

import os
import random
import shutil

import pytest

# More of them for a longer run: CLEARHEAD_FUZZ_SEEDS=500 pytest tests/cli/test_fuzz.py
SEEDS = range(int(os.environ.get("CLEARHEAD_FUZZ_SEEDS", "8")))
COMMANDS = ("explain", "compare", "plan", "words", "bench", "list", "report", "check", "diff", "audit", "snapshot")
VALUES = (
    "",
    "-",
    "--",
    "x",
    "0",
    "-1",
    "1e9",
    "nan",
    "None",
    "a,b",
    "a=b",
    "a:b=c",
    "[]",
    "{}",
    "é",
    "🙂",
    "/",
    "..",
)
FLAGS = (
    *("--method", "--methods", "--target", "--versus", "-o", "--text-column", "--overflow", "--precision", "--device"),
    *("--batch-size", "--check", "--no-check", "--json", "--out", "--pair", "--as-text", "--allow-pickle", "--metrics"),
    *("--task", "--limit", "--shard", "--seed", "--delimiter", "--encoding", "--answer", "--gold", "--curves", "--top"),
)
COMMANDS_PER_SEED = 12


def draw_arguments(generator, model, files):
    """Return a command with flags and values in any order, about half of them valid."""
    arguments = [generator.choice(COMMANDS)]
    for _ in range(generator.randrange(4)):
        arguments.append(generator.choice(FLAGS))
        arguments.append(generator.choice([*VALUES, *files, "gradient", "aopc", "positive"]))
    arguments.append(generator.choice(["a good film", *files, *VALUES]))
    # Two models are compared by one command, and a mistake for the others.
    for _ in range(generator.choice([1, 1, 2])):
        arguments += ["-m", generator.choice([model, *files])]
    return arguments


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for variable in ("CLEARHEAD_DELIMITER", "CLEARHEAD_ENCODING"):
        monkeypatch.setenv(variable, "")
    generator = random.Random(0)
    names = ["a.csv", "b.tsv", "c.jsonl", "d.txt", "e.json", "f.png", "g.parquet"]
    for name in names:
        (tmp_path / name).write_bytes(generator.randbytes(generator.randrange(200)))
    (tmp_path / "h.csv").write_text("text,label\na good film,1\n")
    return [*names, "h.csv"]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_arguments_end_in_a_traceback(run, model, files, seed):
    generator = random.Random(seed)
    for _ in range(COMMANDS_PER_SEED):
        arguments = draw_arguments(generator, model, files)
        # An error that is not a user's leaves `run` as a traceback.
        code, _, errors = run(*arguments, stdin="a good film")
        assert code in (0, 1, 2), arguments
        if code == 2:
            assert errors.strip().splitlines()[-1].startswith("clearhead: "), arguments


@pytest.mark.parametrize("seed", SEEDS)
def test_no_damaged_folder_ends_in_a_traceback(run, model, tmp_path, seed):
    generator = random.Random(seed)
    for number in range(3):
        folder = tmp_path / str(number)
        shutil.copytree(model, folder)
        damage_at_random(generator, folder)
        code, _, errors = run("explain", "a good film", "-m", str(folder), "--no-check")
        assert code in (0, 2)
        if code == 2:
            assert errors.count("\n") == 1


def damage_at_random(generator, folder):
    """Cut, overwrite or remove a part of one file."""
    path = generator.choice(sorted(folder.iterdir()))
    content = bytearray(path.read_bytes())
    start = generator.randrange(len(content))
    how = generator.choice(["cut", "overwrite", "remove", "drop"])
    if how == "cut":
        path.write_bytes(content[:start])
    elif how == "overwrite":
        content[start : start + 20] = generator.randbytes(20)
        path.write_bytes(content)
    elif how == "drop":
        del content[start : start + 20]
        path.write_bytes(content)
    else:
        path.unlink()

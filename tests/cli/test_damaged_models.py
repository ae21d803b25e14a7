"""A damaged model folder is one line and exit code 2, whatever is wrong with it."""

import pytest
from helpers.commands import assert_one_line
from helpers.damaged_models import DAMAGES, damage_copy

TEXT = "a fine film"
ROUND_ROBIN = ("explain", "bench", "serve")


def write_task(folder):
    task = folder / "task.tsv"
    task.write_text("sentence\tlabel\na good film\t1\na bad film\t0\n")
    return str(task)


def arguments_for(command, folder, tmp_path):
    """Return a command that loads the model of a folder."""
    bench = [
        "--task",
        write_task(tmp_path),
        "--methods",
        "gradient",
        "--metrics",
        "aopc",
        "--out",
        str(tmp_path / "run"),
    ]
    arguments = {"explain": [TEXT], "bench": bench, "serve": ["--port", "0", "--no-open"]}
    return [command, *arguments[command], "-m", str(folder)]


def choose_command(name):
    """Return the command that meets a damage: they take turns."""
    # The page loads a model before it tokenises anything.
    if name == "tokenizer of another model":
        return "explain"
    return ROUND_ROBIN[list(DAMAGES).index(name) % len(ROUND_ROBIN)]


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_model_is_one_line(run, model, tmp_path, name):
    folder = damage_copy(model, tmp_path / "damaged", name)
    code, output, errors = run(*arguments_for(choose_command(name), folder, tmp_path))
    assert_one_line(code, output, errors, DAMAGES[name][1])


@pytest.mark.parametrize("command", ROUND_ROBIN)
def test_cut_weights_are_one_line_in_every_command(run, model, tmp_path, command):
    folder = damage_copy(model, tmp_path / "damaged", "cut weights")
    assert_one_line(*run(*arguments_for(command, folder, tmp_path)), "damaged or cut off")


def test_pickled_weights_need_a_flag_and_are_the_same(run, model, tmp_path):
    folder = damage_copy(model, tmp_path / "pickled", "pickled weights")
    assert_one_line(*run("explain", TEXT, "-m", str(folder)), "Pickled weights need --allow-pickle.")
    code, pickled, _ = run("explain", TEXT, "-m", str(folder), "--allow-pickle", "--json", "--no-check")
    assert code == 0
    _, expected, _ = run("explain", TEXT, "-m", model, "--json", "--no-check")
    assert pickled.replace(str(folder), model) == expected


def test_pickled_code_is_not_run_even_with_the_flag(run, model, tmp_path):
    import os

    import torch

    class Code:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "was-run"),)

    folder = damage_copy(model, tmp_path / "pickled", "pickled weights")
    torch.save({"classifier.weight": Code()}, folder / "pytorch_model.bin")
    assert_one_line(*run("explain", TEXT, "-m", str(folder), "--allow-pickle"), "could run code")
    assert not (tmp_path / "was-run").exists()


LOADING = ("explain", "compare", "words", "plan", "choose", "sanity", "snapshot", "audit", "diff", "ask", "serve")


@pytest.mark.parametrize("command", [*LOADING, "bench", "check"])
def test_every_command_that_loads_a_model_has_the_flag(run, command):
    code, output, _ = run(command, "--help")
    assert code == 0
    assert "--allow-pickle" in output


def test_bench_reads_pickled_weights(run, model, tmp_path):
    folder = damage_copy(model, tmp_path / "pickled", "pickled weights")
    code, output, _ = run(*arguments_for("bench", folder, tmp_path), "--allow-pickle")
    assert code == 0
    assert "gradient" in output

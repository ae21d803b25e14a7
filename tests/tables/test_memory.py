"""Memory does not grow with the table."""

import subprocess
import sys
from pathlib import Path

import pytest

import clearhead

MAX_GROWTH = 48 * 2**20
PEAK = """
import json, resource, sys
from pathlib import Path
import numpy as np
import clearhead
from clearhead.explanation import Explanation
from clearhead.model.target import Target
from clearhead.tables import explain_table, explainer

folder, root, ending, rows = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
table = root / f"rows{rows}.jsonl"
with open(table, "w") as file:
    for number in range(rows):
        file.write(json.dumps({"id": number, "text": f"a film number {number}"}) + "\\n")


def explain(model, inputs, spec, targets, **settings):
    # Stands for a network: what is measured is everything around it.
    offsets = ((0, 0), (0, 1), (2, 6), (0, 0))
    fixed = {"special": np.array([True, False, False, True]), "target": Target(0), "label": "x", "method": spec.text}
    tokens = ("[CLS]", "a", "film", "[SEP]")
    return [Explanation(tokens, np.arange(4.0), text=text, offsets=offsets, **fixed) for text in inputs]


explainer.explain = explain
clearhead.explain_table(clearhead.load(folder), table, root / f"out{rows}.{ending}", "raw-attention")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units elsewhere")
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_ten_times_the_rows_take_the_same_memory(folder, tmp_path, ending):
    few, many = (measure_peak(folder, tmp_path, ending, rows) for rows in (8_000, 80_000))
    assert many - few < MAX_GROWTH


def measure_peak(folder, root, ending, rows):
    environment = {"PYTHONPATH": str(Path(clearhead.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PEAK, str(folder), str(root), ending, str(rows)]
    process = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert process.returncode == 0, process.stderr
    return int(process.stdout)

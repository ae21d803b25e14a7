"""What the project promises of itself: layers, public names, no work on import, nothing of one machine."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import clearhead
from clearhead.attribution.names import METHOD_NAMES

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "clearhead"
# A folder imports only from its own line or a line above it.
LAYERS = (
    "errors version arrays environment cluster lazy files run_files manifest plain progress registry validation spec",
    "model",
    "data",
    "engine",
    "check explanation answer_explanation joint_explanation serialization model_diff",
    "perturbation",
    "attribution",
    "trust",
    "towers joined api",
    "tables",
    "evaluation",
    "drift",
    "testing",
    "views",
    "bench",
    "web cli __main__",
)
LAYER = {name: number for number, line in enumerate(LAYERS) for name in line.split()}
CONTRACT = {
    *("load", "explain", "compare", "capture", "read", "evaluate", "methods", "metrics", "tasks", "models"),
    *("Target", "Explanation", "Model", "Trace", "Table"),
    *("ClearheadError", "UnsupportedModel", "UnsupportedOperation"),
}


def sources():
    return sorted(SOURCE.rglob("*.py"))


def layer(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path):
    """Names of Clearhead modules imported at the top of a file, not inside functions."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "clearhead":
            parts = (node.module or "").split(".")
            yield from ([parts[1]] if len(parts) > 1 else [alias.name for alias in node.names])
        elif isinstance(node, ast.Import):
            yield from (name.name.split(".")[1] for name in node.names if name.name.startswith("clearhead."))


@pytest.mark.parametrize("path", [path for path in sources() if layer(path) != "__init__"], ids=lambda p: p.name)
def test_a_module_imports_only_from_its_layer_or_above(path):
    for name in imports(path):
        assert LAYER[name] <= LAYER[layer(path)], f"{path.name} imports {name}"


def test_public_names():
    assert set(clearhead.__all__) | {"methods"} >= CONTRACT
    for name in CONTRACT:
        assert getattr(clearhead, name) is not None
    assert set(dir(clearhead)) >= CONTRACT


def test_methods_can_be_listed_with_their_papers():
    listed = clearhead.methods()
    assert "att-cat" in listed
    for name, method in listed.items():
        assert method.paper
        assert method.summary, name
        assert name == method.compute.__name__.replace("_", "-")


def test_shell_completion_knows_every_method():
    assert list(METHOD_NAMES) == sorted(clearhead.methods())


def test_unknown_attributes_are_attribute_errors():
    with pytest.raises(AttributeError, match="explian"):
        _ = clearhead.explian


def test_importing_costs_nothing():
    code = (
        "import sys, clearhead; print(sorted({'torch', 'transformers', 'numpy', 'PIL', 'captum'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


OPTIONAL = "captum datasets fastapi gguf matplotlib pandas peft pyarrow ray scipy skimage triton uvicorn wordcloud"


def test_explaining_needs_no_optional_package():
    """Wheels of torch for CPUs come without Triton, and extras are extras."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({OPTIONAL.split()!r}))\n"
        "import clearhead; print(clearhead.explain(clearhead.load(), 'a tedious film').label)"
    )
    explained = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert explained.stdout.strip() == "negative", explained.stderr[-1000:]


def test_nothing_of_one_machine_or_host():
    pattern = re.compile(r"/(?:home|work|root|Users)/\w|https?://(?:pypi|registry|files)\.")
    for path in [*sources(), *ROOT.glob("*.*"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").glob("*.py")]:
        if path.name not in (Path(__file__).name, ".git") and path.is_file():
            assert not pattern.search(path.read_text(errors="ignore")), path


def test_every_error_is_in_the_drawn_tree():
    from clearhead import errors

    classes = [name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)]
    for name in classes:
        assert name in (errors.__doc__ or "")
        assert issubclass(getattr(errors, name), errors.ClearheadError)


def test_every_method_has_a_page():
    for name in clearhead.methods():
        page = ROOT / "docs" / "methods" / f"{name}.md"
        assert page.exists(), f"docs/methods/{name}.md is missing"
        assert name in (ROOT / "docs" / "methods" / "README.md").read_text()


def test_every_metric_is_on_its_page():
    page = (ROOT / "docs" / "metrics" / "README.md").read_text()
    for name, metric in clearhead.metrics().items():
        row = next((line for line in page.splitlines() if line.startswith(f"| [{name}](")), "")
        assert f"| {metric.better} |" in row, name
        assert (ROOT / "docs" / "metrics" / f"{name}.md").exists(), name

"""The code stays light: what ruff cannot see is measured here over all of src/clearhead.

The limits and what they were compared with are in docs/decisions/layout.md.
"""

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "clearhead"
MAX_MEDIAN_NODES = 30
MAX_COMPREHENSIONS, MAX_TERNARIES = 20, 5
"""Per 1,000 lines."""
MIN_COMMENTS = 0.035
MAX_LINES = 400
VAGUE = {"one", "found", "place", "places", "part", "parts", "said", "told", "made", "several", "wanted", "taken"}
"""Names that do not say what they hold."""
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8")) for path in modules()}


def nodes(trees: dict[Path, ast.Module]) -> Iterator[ast.AST]:
    for tree in trees.values():
        yield from ast.walk(tree)


def count_lines() -> int:
    return sum(path.read_text("utf-8").count("\n") for path in modules())


def weigh(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Nodes of the body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return sum(1 for statement in body for _ in ast.walk(statement))


def test_the_median_function_is_light(trees):
    weights = [weigh(node) for node in nodes(trees) if isinstance(node, FUNCTIONS)]
    assert statistics.median(weights) <= MAX_MEDIAN_NODES


@pytest.mark.parametrize(("kinds", "limit"), [(COMPREHENSIONS, MAX_COMPREHENSIONS), ((ast.IfExp,), MAX_TERNARIES)])
def test_expressions_are_unpacked(trees, kinds, limit):
    count = sum(isinstance(node, kinds) for node in nodes(trees))
    assert 1000 * count / count_lines() <= limit


def test_no_comprehension_holds_another(trees):
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, COMPREHENSIONS):
                inner = [child for child in ast.walk(node) if isinstance(child, COMPREHENSIONS) and child is not node]
                assert not inner, f"{path.name}:{node.lineno}"


def test_names_say_what_they_hold(trees):
    for path, tree in trees.items():
        for node in ast.walk(tree):
            is_binding = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE
            is_argument = isinstance(node, ast.arg) and node.arg in VAGUE
            assert not is_binding and not is_argument, f"{path.name}:{node.lineno} {ast.unparse(node)}"


def test_comments_say_why():
    lines = [line.strip() for path in modules() for line in path.read_text("utf-8").splitlines()]
    assert sum(line.startswith("#") for line in lines) / len(lines) >= MIN_COMMENTS


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_holds_one_concept(path):
    assert path.read_text("utf-8").count("\n") <= MAX_LINES

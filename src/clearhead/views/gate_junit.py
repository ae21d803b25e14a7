"""The result of a gate as JUnit XML, which CI servers show beside the results of tests."""

from collections.abc import Iterator
from xml.etree import ElementTree

from clearhead.drift.gate import WORDS_NAME, Condition, GateResult
from clearhead.model_diff import ExampleDiff
from clearhead.views.diff_tables import describe_reasons, describe_row, format_signed
from clearhead.views.text_spans import escape_hidden

SUITE = "clearhead check"
MAX_EXAMPLES = 10


def document(result: GateResult) -> bytes:
    """Render a test suite with a test case for each condition."""
    counts = _count_cases(result)
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": SUITE, **counts})
    for condition in result.conditions:
        _add_case(suite, condition, result)
    # No times: the same result is the same file.
    ElementTree.indent(root)
    content: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return content


def _count_cases(result: GateResult) -> dict[str, str]:
    return {"tests": str(len(result.conditions)), "failures": str(len(result.failed)), "errors": "0"}


def _add_case(suite: ElementTree.Element, condition: Condition, result: GateResult) -> None:
    case = ElementTree.SubElement(suite, "testcase", {"classname": SUITE, "name": condition.name})
    sentence = escape_hidden(condition.sentence)
    if condition.holds:
        ElementTree.SubElement(case, "system-out").text = sentence
    else:
        failure = ElementTree.SubElement(case, "failure", {"message": sentence, "type": "moved"})
        # Each failure lists what it is about.
        describe = _describe_words if condition.name == WORDS_NAME else _describe_examples
        failure.text = "\n".join(map(escape_hidden, describe(result)))


def _describe_words(result: GateResult) -> Iterator[str]:
    yield "Words that moved beyond noise, share per occurrence:"
    for word in result.diff.words[:MAX_EXAMPLES]:
        if word.is_beyond_noise:
            change = f"{format_signed(word.first)} before, {format_signed(word.second)} after"
            yield f"{word.word}: {change}, in {word.examples} examples"


def _describe_examples(result: GateResult) -> Iterator[str]:
    yield "Examples whose reasons moved most:"
    for row in result.diff.rows[:MAX_EXAMPLES]:
        yield _describe_example(row)


def _describe_example(row: ExampleDiff) -> str:
    shift = f"{row.agreement.shift:.1%} moved, {describe_row(row)}"
    return f"{row.first.id}: {shift}; before: {describe_reasons(row.first)}; after: {describe_reasons(row.second)}"

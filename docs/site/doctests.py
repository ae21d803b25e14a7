"""Griffe extension: examples in docstrings (`>>> …`) become code on the site, where Markdown would read a quotation."""

from typing import Any

from griffe import Extension, Object

PROMPT = ">>>"


class DoctestExamples(Extension):
    """Puts the examples at the end of a docstring into the section that the site shows as code."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of an object that was read."""
        if obj.docstring is not None and not obj.is_alias:
            obj.docstring.value = mark_examples(obj.docstring.value)


def mark_examples(docstring: str) -> str:
    """Return the docstring with its examples, from the first prompt on, in a section "Examples"."""
    lines = docstring.splitlines()
    prompts = [index for index, line in enumerate(lines) if line.startswith(PROMPT)]
    if not prompts:
        return docstring
    text, examples = lines[: prompts[0]], lines[prompts[0] :]
    return "\n".join([*text, "", "Examples:", *(f"    {line}" for line in examples)])

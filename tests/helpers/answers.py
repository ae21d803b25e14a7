"""Explanations of answers written by hand, for tests of files and views."""

import re
from typing import Any

import numpy as np

from clearhead.answer_explanation import AnswerExplanation, Step
from clearhead.model.target import AnswerTarget

PROMPT = "The capital of France is"
ANSWER = "Paris on the Seine"
CHAT = "<|user|>\nWhich river flows through Paris?<|end|>\n<|assistant|>\n"


def _tokenise(text: str, segment: int) -> list[tuple[str, tuple[int, int, int]]]:
    matches = re.finditer(r"<\|\w+\|>|\w{1,5}|[^\w\s]", text)
    return [(match.group(), (segment, *match.span())) for match in matches]


def _explain_steps(count: int, prompt_length: int, tokens: int) -> np.ndarray:
    """Return made-up relevance of steps × tokens; nothing after the step, most on the first token."""
    matrix = np.zeros((count, tokens))
    for step in range(count):
        for token in range(prompt_length + step):
            matrix[step, token] = ((step * 7 + token * 5) % 11 - 3) / 10
        matrix[step, 0] = 2.0
    return matrix


def explained_answer(
    prompt: str = PROMPT, answer: str = ANSWER, *, with_matrix: bool = True, **changes: Any
) -> AnswerExplanation:
    """Return an explanation of a whole answer with made-up numbers; <|…|> are the template's tokens."""
    in_prompt = _tokenise(prompt, 0)
    in_answer = _tokenise(answer, 1)
    pairs = [*in_prompt, *in_answer[:-1]]
    steps = tuple(
        Step(token, start, end, 0.9 / (1 + index)) for index, (token, (_, start, end)) in enumerate(in_answer)
    )
    explained = tuple(range(len(steps)))
    matrix = _explain_steps(len(steps), len(in_prompt), len(pairs))
    fields = {
        "tokens": tuple(token for token, _ in pairs),
        "relevance": matrix.sum(0),
        "special": np.array([token.startswith("<|") for token, _ in pairs]),
        "target": AnswerTarget(steps=explained, tokens=explained),
        "label": answer,
        "method": "attn-lrp",
        "text": (prompt, answer),
        "offsets": tuple(offset for _, offset in pairs),
        "probability": float(np.prod([step.probability for step in steps])),
        "model": "tiny",
        "diagnostics": {"conservation_gap": 1e-6},
        "answer": answer,
        "prompt_length": len(in_prompt),
        "steps": steps,
        "explained": explained,
        "matrix": matrix if with_matrix else None,
    }
    return AnswerExplanation(**{**fields, **changes})


def contrasted_answer() -> AnswerExplanation:
    """Return an explanation of one word rather than another."""
    return explained_answer(
        answer="Paris",
        label="Paris rather than London",
        steps=(Step("ĠParis", 0, 5, 0.9, "ĠLondon", 0.03),),
        target=AnswerTarget(steps=(0,), tokens=(7,), foil=(8,)),
    )

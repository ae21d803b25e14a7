"""clearhead explain with two inputs: a picture or text, and the texts that are compared or read with it."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.cli import outputs
from clearhead.cli.inputs import InputReader
from clearhead.cli.tables import select_inputs
from clearhead.errors import BadInput, BadOption

if TYPE_CHECKING:
    from clearhead.attribution.method import MethodSpec
    from clearhead.joint_explanation import JointExplanation
    from clearhead.model.model import Model


def explain_and_deliver(
    model: "Model",
    arguments: Sequence[str],
    spec: "MethodSpec",
    settings: Mapping[str, Any],
    target: tuple[str | None, str | None],
    *,
    out: Path | None,
    json: bool,
) -> None:
    """Explain a pair and write or print it; `target` is a text, and one that it is contrasted with."""
    # Before the work is done: a file of one explanation cannot hold those of several texts.
    if out is not None and out.suffix == ".json" and len(arguments) > 2 and target == (None, None):
        raise BadOption("A .json file holds one explanation, but there are several texts: use .jsonl, or --target.")
    _deliver(explain_pair(model, arguments, spec, settings, *target), spec, out=out, json=json)


def explain_pair(
    model: "Model", arguments: Sequence[str], spec: "MethodSpec", settings: Mapping[str, Any], target: Any, versus: Any
) -> "list[JointExplanation]":
    """Explain a picture or text for each of several texts, the most similar first, or for the one that is named."""
    import clearhead

    pair = read_pair(model, arguments)
    chosen = make_target(target, versus)
    if model.reads_jointly:
        # Each text is an input of its own, whose classes are those of the model.
        return list(clearhead.explain(model, [(pair[0], text) for text in pair[1]], spec, chosen, **settings))
    best: JointExplanation = clearhead.explain(model, pair, spec, chosen, **settings)
    if chosen is not None or len(pair[1]) == 1:
        return [best]
    # The others from the same call of the model: their explanations share its batches.
    rest = [text for text in _rank_texts(best) if text != best.label]
    others = clearhead.explain(model, [pair] * len(rest), spec, list(map(pair[1].index, rest)), **settings)
    return [best, *others]


def _rank_texts(joint: "JointExplanation") -> list[str]:
    scores = joint.diagnostics["scores"]
    return sorted(scores, key=lambda text: -scores[text])


def make_target(target: str | None, versus: str | None) -> Any:
    """Return the text that is explained, and the one that it is contrasted with; None if neither is named."""
    from clearhead.model.target import Target

    if not target and not versus:
        return None
    return Target(_parse_text(target), versus=_parse_text(versus))


def _parse_text(name: str | None) -> Any:
    # A number counts the texts, unless a text is called so.
    if name is not None and name.isdecimal():
        return int(name)
    return name


def refuse_flags(model: "Model", flags: Mapping[str, Any]) -> None:
    """Raise BadOption for flags that were given although they are for single inputs."""
    for flag, value in flags.items():
        if value:
            raise BadOption(f"{flag} is for single inputs, but {model.name} reads two: leave it out.")


def read_pair(model: "Model", arguments: Sequence[str]) -> tuple[Any, list[str]]:
    """Return the picture or text, and the texts that it is compared with."""
    takes_images = model.network.takes_images
    expected = "a picture and texts" if takes_images else "two or more texts"
    if len(arguments) < 2:
        raise BadInput(f'{model.name} reads two inputs: give {expected}, as in INPUT "a photo of a cat".')
    first, *texts = arguments
    inputs = select_inputs(InputReader(takes_images).read([first]))
    if takes_images and not isinstance(inputs[0], Path):
        raise BadInput(f"'{first}' is no picture, but {model.name} reads a picture and texts: name its file first.")
    _refuse_table(inputs, first)
    return inputs[0], select_inputs(InputReader(images=False).read(texts))


def _refuse_table(inputs: Sequence[Any], first: str) -> None:
    if len(inputs) > 1:
        raise BadInput(f"'{first}' is a table: such a model is explained for one picture or text at a time.")


def _deliver(joints: "Sequence[JointExplanation]", spec: "MethodSpec", *, out: Path | None, json: bool) -> None:
    """Write and print the explanations of a picture for one text or several; an image has the first."""
    from clearhead.views import joint_html

    # An image is of one text: the most similar, or the one that was named.
    shown: Any = joints
    if outputs.is_image(out):
        shown = joints[:1]
    render = partial(joint_html.choices, joints) if len(joints) > 1 else partial(joint_html.card, joints[0])
    outputs.deliver(
        [(spec.text, joint) for joint in shown],
        out=out,
        json=json,
        render_page=lambda: [render()],
        show=partial(outputs.show_explanations, shown, everything=out is None),
    )

"""The menu of methods on the page: groups, plain names, the inputs they take, and the values of closed options."""

from collections.abc import Mapping, Sequence

from clearhead.attribution.baselines import IMAGE_BASELINES, TEXT_BASELINES
from clearhead.perturbation.features import IMAGE_UNITS, TEXT_UNITS
from clearhead.perturbation.replacement import IMAGE_REPLACEMENTS, TEXT_REPLACEMENTS
from clearhead.perturbation.scores import OUTPUTS

MENU: dict[str, dict[str, str]] = {
    "Recommended": {
        "auto": "the best on this input",
        "balanced-cat": "balanced relevance of all blocks",
        "attn-lrp": "relevance back to the words",
    },
    "Hide and measure": {
        "occlusion": "hide one after the other",
        "shapley-sampling": "Shapley values by sampling",
        "lime": "a linear model of hidden words",
        "context-cite": "which sources an answer rests on",
    },
    "Gradients": {
        "gradient": "size of the gradient",
        "gradient-x-input": "gradient times input",
        "integrated-gradients": "gradients from a baseline to the input",
        "smooth-gradient": "gradient averaged over noise",
        "gradient-shap": "gradients at random baselines",
        "deeplift-shap": "differences to random baselines",
    },
    "Relevance": {
        "cp-lrp": "relevance with fixed attention",
        "lrp": "layer-wise relevance",
        "partial-lrp": "relevance of the last attention",
        "trans-att": "relevance times attention, rolled out",
    },
    "Attention with gradients": {
        "att-cat": "features weighted by attention",
        "cat": "features of all blocks",
        "att-grads": "attention times gradient",
        "gae": "attention times gradient, rolled out",
        "grads": "gradient of the last attention",
        "attention-gradcam": "Grad-CAM of the last attention",
        "layer-gradcam": "Grad-CAM of one block",
        "decoded-gradcam": "Grad-CAM, read as words",
    },
    "Attention alone (the same for every class)": {
        "raw-attention": "the last attention",
        "rollout": "attention of all blocks, rolled out",
        "attention-flow": "maximum flow of attention; slow",
    },
    "For comparison": {"random": "chance"},
}
INPUTS = ("text", "image", "prompt")
# Methods that do not take every input.
LIMITED_INPUTS: dict[str, tuple[str, ...]] = {"context-cite": ("prompt",), "decoded-gradcam": ("text",)}
# Options with a few possible values, by input.
CHOICES: dict[str, dict[str, tuple[str, ...]]] = {
    "text": {"unit": TEXT_UNITS, "replacement": TEXT_REPLACEMENTS, "output": OUTPUTS, "baseline": TEXT_BASELINES},
    "image": {"unit": IMAGE_UNITS, "replacement": IMAGE_REPLACEMENTS, "output": OUTPUTS, "baseline": IMAGE_BASELINES},
}


def find_group(name: str) -> tuple[str, str]:
    """Return the group of a method and its plain name; methods that others have registered come last."""
    for group, titles in MENU.items():
        if name in titles:
            return group, titles[name]
    return "Other", ""


def list_inputs(name: str) -> list[str]:
    """Return which inputs a method takes: text, image, prompt."""
    return list(LIMITED_INPUTS.get(name, INPUTS))


def list_choices() -> dict[str, dict[str, list[str]]]:
    """Return the values of options that are closed, by input and name."""
    return {kind: _convert_values(options) for kind, options in CHOICES.items()}


def _convert_values(options: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {name: list(values) for name, values in options.items()}

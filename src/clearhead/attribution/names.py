"""Names of methods as plain data, for shell completion and reports, which must not import torch."""

DEFAULT_METHOD = "balanced-cat"
DEFAULT_ANSWER_METHOD = "attn-lrp"
"""The default for the answers of language models."""
CONTROL_METHODS = ("random",)
"""Attributions without information, which show what chance reaches."""
METHOD_NAMES = (
    "att-cat",
    "att-grads",
    "attention-flow",
    "attention-gradcam",
    "attn-lrp",
    "balanced-cat",
    "cat",
    "context-cite",
    "cp-lrp",
    "decoded-gradcam",
    "deeplift-shap",
    "gae",
    "gradient",
    "gradient-shap",
    "gradient-x-input",
    "grads",
    "integrated-gradients",
    "layer-gradcam",
    "lime",
    "lrp",
    "occlusion",
    "partial-lrp",
    "random",
    "raw-attention",
    "rollout",
    "shapley-sampling",
    "smooth-gradient",
    "trans-att",
)

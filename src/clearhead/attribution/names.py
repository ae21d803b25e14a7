"""The methods' names as plain data, for shell completion, which cannot wait for torch to be imported."""

METHOD_NAMES = (
    "att-cat",
    "att-grads",
    "attention-flow",
    "attention-gradcam",
    "cat",
    "decoded-gradcam",
    "deeplift-shap",
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


DEFAULT_METHOD = "trans-att"

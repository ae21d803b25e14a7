"""Names of methods as plain data, for shell completion and reports, which must not import torch."""

DEFAULT_METHOD = "balanced-cat"
DEFAULT_ANSWER_METHOD = "attn-lrp"
"""The default for the answers of language models."""
DEFAULT_INPUT_METHOD = "attn-lrp"
"""The default for networks whose blocks have other tokens than their input, or no attention maps."""
TYPES_WITHOUT_BLOCKS = (
    "big_bird",
    "diffllama",
    "flaubert",
    "funnel",
    "hiera",
    "levit",
    "lilt",
    "longformer",
    "mobilevit",
    "xlm",
    "xlnet",
)
"""Types of such networks, besides encoder–decoders that classify."""
DEFAULT_PIXEL_METHOD = "integrated-gradients"
"""The default for pictures that a convolutional network reads, whose biases hold back what attn-lrp gives."""
CONVOLUTIONAL_TYPES = ("align", "align_vision_model")
"""Types of such networks."""
DEFAULT_FUNCTION_METHOD = "occlusion"
"""The default for functions, of which only the outputs are known."""
DEFAULT = "default"
"""In place of a method's name: the library's default, also for a model that a method was chosen for."""
CONTROL_METHODS = ("random",)
"""Attributions without information, which show what chance reaches."""
METHOD_NAMES = (
    "att-cat",
    "att-grads",
    "attention-flow",
    "attention-gradcam",
    "attn-lrp",
    "auto",
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
ONE_TRACE_METHODS = (
    "balanced-cat",
    "att-cat",
    "att-grads",
    "attention-gradcam",
    "attn-lrp",
    "cat",
    "cp-lrp",
    "gae",
    "gradient",
    "gradient-x-input",
    "grads",
    "layer-gradcam",
    "lrp",
    "partial-lrp",
    "raw-attention",
    "rollout",
    "trans-att",
)
"""Methods that one recorded pass and its gradients are enough for, the default first."""
RELATED_METHODS = {
    "shap": "SHAP's estimates are shapley-sampling (any model), gradient-shap and deeplift-shap (with gradients).",
    "shapley": "Shapley values are estimated by shapley-sampling.",
    "kernel-shap": "Its estimates are close to those of shapley-sampling, or of lime.",
    "partition-shap": "Its estimates are close to those of shapley-sampling.",
    "ig": "Integrated gradients are called integrated-gradients.",
    "saliency": "Saliency is called gradient; see also gradient-x-input.",
    "smoothgrad": "SmoothGrad is called smooth-gradient.",
    "input-x-gradient": "It is called gradient-x-input.",
    "deeplift": "DeepLIFT is part of deeplift-shap.",
    "attention": "Attention maps are raw-attention and rollout.",
    "attention-rollout": "Attention rollout is called rollout.",
    "gradcam": "Grad-CAM is attention-gradcam, layer-gradcam or decoded-gradcam.",
    "grad-cam": "Grad-CAM is attention-gradcam, layer-gradcam or decoded-gradcam.",
    "feature-ablation": "Feature ablation is called occlusion.",
    "ablation": "Feature ablation is called occlusion.",
    "leave-one-out": "Leaving out one word at a time is called occlusion.",
    "chefer": "Chefer et al. are trans-att (2021, CVPR) and gae (2021, ICCV).",
    "captum": "Captum's methods have names such as integrated-gradients, gradient-shap and occlusion.",
}
"""Names from other libraries and papers, with what they are here."""

"""Decoded layer saliency: Tables 1 and 2, Figures 2 to 6 and 9.

Layers are written as shares of the model's depth: the paper's model has twelve blocks, other models may not.
"""

from clearhead.bench.benchmark import Benchmark, register

CONTROL = "random"
SST2 = "SST-2, with a model that has its masked-LM head"
NEWS = "AG News, with a model that has its masked-LM head"
PERTURBATIONS = ("revealing", "hiding")
INPUT_LAYER = "layer-gradcam:layer=0"
# As many samples as the paper's packages draw by default: ours draw more, so that two seeds agree.
GRADIENT_METHODS = ("gradient", "smooth-gradient:samples=10", "integrated-gradients:steps=10")
REFERENCE_METHODS = ("shapley-sampling", "occlusion:window=3", "integrated-gradients")
APPROXIMATE_METHODS = ("gradient-shap:samples=5", "lime:samples=25", "gradient-x-input", "deeplift-shap:samples=5")


def _decoded_layers(*layers: int) -> tuple[str, ...]:
    return tuple(f"decoded-gradcam:layer={layer}/12" for layer in layers)


SENTIMENT_METHODS = (INPUT_LAYER, *_decoded_layers(5, 6, 7, 8), *GRADIENT_METHODS, CONTROL)
TOPIC_METHODS = (INPUT_LAYER, *_decoded_layers(6, 8, 9), *REFERENCE_METHODS, *APPROXIMATE_METHODS, CONTROL)
EVERY_LAYER = (INPUT_LAYER, "decoded-gradcam:layer=*", CONTROL)
OVERLAP_METHODS = (*_decoded_layers(6, 7), *GRADIENT_METHODS, *REFERENCE_METHODS)


def _make_benchmark(
    name: str, title: str, data: str, methods: tuple[str, ...], metrics: tuple[str, ...] = PERTURBATIONS
) -> Benchmark:
    return Benchmark(f"decoded-{name}", f"Decoded layer saliency, {title}", data, methods, metrics)


register(
    _make_benchmark("table1", "Table 1: revealing and hiding on SST-2, area under the curve", SST2, SENTIMENT_METHODS),
    _make_benchmark("table2", "Table 2: revealing and hiding on AG News, area under the curve", NEWS, TOPIC_METHODS),
    _make_benchmark("figure2", "Figure 2: revealing and hiding on SST-2", SST2, SENTIMENT_METHODS),
    _make_benchmark("figure3", "Figure 3: revealing and hiding on AG News", NEWS, TOPIC_METHODS),
    _make_benchmark(
        "figure4",
        "Figure 4: share of tokens common to classes",
        f"{SST2}; or AG News",
        OVERLAP_METHODS,
        ("token-overlap",),
    ),
    _make_benchmark("figure5", "Figure 5: revealing and hiding at every layer on SST-2", SST2, EVERY_LAYER),
    _make_benchmark("figure6", "Figure 6: revealing and hiding at every layer on AG News", NEWS, EVERY_LAYER),
    _make_benchmark(
        "figure9",
        "Figure 9: number of tokens common to classes",
        f"{SST2}; or AG News",
        OVERLAP_METHODS,
        ("token-overlap",),
    ),
)

"""Decoded layer saliency: Tables 1 and 2, Figures 2 to 6 and 9.

Layers are written as shares of the model's depth, since the paper's model has twelve blocks and yours may not.
"""

from clearhead.bench.benchmark import Benchmark, register

RANDOM = "random"
SST2 = "SST-2, with a model that has its masked-LM head"
NEWS = "AG News, with a model that has its masked-LM head"
GAMES = ("revealing", "hiding")
FIRST = "layer-gradcam:layer=0"
SIMPLE = ("gradient", "smooth-gradient", "integrated-gradients:steps=10")
COSTLY = ("shapley-sampling", "occlusion:window=3", "integrated-gradients")
APPROXIMATE = ("gradient-shap", "lime", "gradient-x-input", "deeplift-shap")


def _layers(*twelfths: int) -> tuple[str, ...]:
    return tuple(f"decoded-gradcam:layer={number}/12" for number in twelfths)


SENTIMENT = (FIRST, *_layers(5, 6, 7, 8), *SIMPLE, RANDOM)
TOPICS = (FIRST, *_layers(6, 8, 9), *COSTLY, *APPROXIMATE, RANDOM)
EVERY = (FIRST, "decoded-gradcam:layer=*", RANDOM)
OVERLAP = (*_layers(6, 7), *SIMPLE, *COSTLY)


def _benchmark(
    name: str, title: str, data: str, methods: tuple[str, ...], metrics: tuple[str, ...] = GAMES
) -> Benchmark:
    return Benchmark(f"decoded-{name}", f"Decoded layer saliency, {title}", data, methods, metrics)


register(
    _benchmark("table1", "Table 1: revealing and hiding on SST-2, area under the curve", SST2, SENTIMENT),
    _benchmark("table2", "Table 2: revealing and hiding on AG News, area under the curve", NEWS, TOPICS),
    _benchmark("figure2", "Figure 2: revealing and hiding on SST-2", SST2, SENTIMENT),
    _benchmark("figure3", "Figure 3: revealing and hiding on AG News", NEWS, TOPICS),
    _benchmark(
        "figure4", "Figure 4: share of tokens common to classes", f"{SST2}; or AG News", OVERLAP, ("token-overlap",)
    ),
    _benchmark("figure5", "Figure 5: revealing and hiding at every layer on SST-2", SST2, EVERY),
    _benchmark("figure6", "Figure 6: revealing and hiding at every layer on AG News", NEWS, EVERY),
    _benchmark(
        "figure9", "Figure 9: number of tokens common to classes", f"{SST2}; or AG News", OVERLAP, ("token-overlap",)
    ),
)

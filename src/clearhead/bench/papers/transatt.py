"""Transformer interpretability beyond attention visualization: Tables 1 to 3, Figure 4."""

from clearhead.bench.benchmark import Benchmark, register

METHODS = ("rollout", "raw-attention", "attention-gradcam", "lrp", "partial-lrp", "trans-att")
VARIANTS = ("trans-att:weight=attention", "trans-att:only_block=-1", "trans-att:only_block=1", "trans-att")
CONTROL = "random"
PERTURBATIONS = (
    "negative-perturbation",
    "negative-perturbation:target=label",
    "positive-perturbation",
    "positive-perturbation:target=label",
)

register(
    Benchmark(
        name="transatt-table1",
        title="TransAtt, Table 1: negative and positive perturbation",
        data="labelled images: a folder per class, or Parquet",
        methods=(*METHODS, CONTROL),
        metrics=PERTURBATIONS,
        methods_across=True,
    ),
    Benchmark(
        name="transatt-table2",
        title="TransAtt, Table 2: segmentation",
        data="images with masks",
        methods=(*METHODS, CONTROL),
        metrics=("segmentation",),
        methods_across=True,
    ),
    Benchmark(
        name="transatt-table3",
        title="TransAtt, Table 3: variants of the method",
        data="labelled images with masks",
        methods=VARIANTS,
        metrics=("segmentation", "positive-perturbation", "negative-perturbation"),
    ),
    Benchmark(
        name="transatt-figure4",
        title="TransAtt, Figure 4: words marked by people among the top k",
        data="ERASER movie reviews with their rationales",
        methods=(*METHODS, CONTROL),
        metrics=("token-f1",),
    ),
)

"""AttCAT: Tables 1 and 2, Figure 3."""

from clearhead.bench.benchmark import Benchmark, register

CLASS_SPECIFIC_METHODS = ("grads", "att-grads", "partial-lrp", "trans-att", "cat", "att-cat")
ALL_METHODS = ("raw-attention", "rollout", *CLASS_SPECIFIC_METHODS)
CONTROL = "random"

register(
    Benchmark(
        name="attcat-table1",
        title="AttCAT, Table 1: AOPC and LOdds",
        data="SST-2, QQP, MNLI, Amazon, Yelp or IMDB; the paper takes 2,000 rows of each",
        methods=(*ALL_METHODS, CONTROL),
        metrics=("aopc", "lodds"),
    ),
    Benchmark(
        name="attcat-table2",
        title="AttCAT, Table 2: Kendall correlation between the orders for different classes",
        data="the data sets of Table 1",
        methods=CLASS_SPECIFIC_METHODS,
        metrics=("kendall",),
    ),
    Benchmark(
        name="attcat-figure3",
        title="AttCAT, Figure 3: answer words among the top 20",
        data="SQuAD v1 or v2 JSON, with a question-answering model",
        methods=(*ALL_METHODS, CONTROL),
        metrics=("precision-at-k",),
    ),
)

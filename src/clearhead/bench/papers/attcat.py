"""AttCAT: Tables 1 and 2, Figure 3."""

from clearhead.bench.benchmark import Benchmark, register

BY_CLASS = ("grads", "att-grads", "partial-lrp", "trans-att", "cat", "att-cat")
ALL = ("raw-attention", "rollout", *BY_CLASS)
RANDOM = "random"

register(
    Benchmark(
        name="attcat-table1",
        title="AttCAT, Table 1: AOPC and LOdds",
        data="SST-2, QQP, MNLI, Amazon, Yelp or IMDB; the paper takes 2,000 rows of each",
        methods=(*ALL, RANDOM),
        metrics=("aopc", "lodds"),
    ),
    Benchmark(
        name="attcat-table2",
        title="AttCAT, Table 2: Kendall correlation between the orders for different classes",
        data="the data sets of Table 1",
        methods=BY_CLASS,
        metrics=("kendall",),
    ),
    Benchmark(
        name="attcat-figure3",
        title="AttCAT, Figure 3: answer words among the top 20",
        data="SQuAD v1 or v2 JSON, with a question-answering model",
        methods=(*ALL, RANDOM),
        metrics=("precision-at-k",),
    ),
)

"""Run the metrics of answers on language models: minimal pairs, LAMBADA passages, and aligned translations.

    python benchmarks/generation.py --data ../shared/data --models models --out results [--jobs 4] [--device cuda]
    python benchmarks/generation.py … --only 'pairs-*' --limit 40 --device cpu    # a small run

`--models` is the folder with smollm2 and marian-zh-en. Each run is a `clearhead bench` in a process of its own with a
run folder under `--out`, so a second call resumes where the first stopped; afterwards each has a report,
`--out/NAME.md`.
"""

from collections.abc import Iterator

from base_models import Folders, Run, execute_all, make_parser, repeat_flag

METHODS = (
    "attn-lrp",
    "cp-lrp",
    "balanced-cat",
    "integrated-gradients:steps=10",
    "gradient-x-input",
    "gradient",
    "att-cat",
    "cat",
    "gae",
    "trans-att",
    "rollout",
    "raw-attention",
    "random",
)
# Where the matrix of steps is needed, every method costs a pass for each token of the answer.
STEP_METHODS = ("attn-lrp", "cp-lrp", "gradient-x-input", "gae", "trans-att", "rollout", "raw-attention", "random")
EVIDENCE_METRICS = ("evidence-rank", "evidence-rank:first=true", "first-token-share")
FAITHFULNESS_METRICS = (
    "log-prob-drop",
    "lds",
    "log-prob-hiding",
    "log-prob-revealing",
    "soft-sufficiency",
    "soft-comprehensiveness",
)
PASSAGE_METRICS = ("recovery", "evidence-rank:target=answer", "first-token-share")


def list_runs(folders: Folders) -> Iterator[Run]:
    """Yield the runs, the most wanted first."""
    generation = folders.data / "generation"
    methods = repeat_flag("--methods", METHODS)
    decoder = ("--model", str(folders.models / "smollm2"))
    evidence = (*decoder, *methods, *repeat_flag("--metrics", EVIDENCE_METRICS))
    yield Run("pairs-all", ("--task", str(generation / "blimp"), *evidence))
    passages = (*decoder, *methods, *repeat_flag("--metrics", (*PASSAGE_METRICS, *FAITHFULNESS_METRICS)))
    yield Run("lambada", ("--task", str(generation / "annotated_lambada.json"), *passages))
    steps = (
        *repeat_flag("--methods", STEP_METHODS),
        *repeat_flag("--metrics", ("alignment-error-rate", "aopc-per-step")),
    )
    marian = ("--model", str(folders.models / "marian-zh-en"))
    yield Run("translations", ("--task", str(generation / "zhen.src-tgt"), *marian, *steps))
    faithful = (*decoder, *methods, *repeat_flag("--metrics", FAITHFULNESS_METRICS))
    # Longer prompts than those of the other tables, so that there is something to remove.
    yield Run("pairs-objects", ("--task", str(generation / "blimp" / "ioi_dataset.csv"), *faithful))


def main() -> None:
    parser = make_parser(__doc__ or "", jobs=4)
    parser.add_argument("--limit", type=int, help="examples of each run")
    arguments = parser.parse_args()
    folders = Folders(arguments.data, arguments.models, arguments.out)
    limit = () if arguments.limit is None else ("--limit", str(arguments.limit))
    execute_all(list_runs(folders), folders, arguments, *limit)


if __name__ == "__main__":
    main()

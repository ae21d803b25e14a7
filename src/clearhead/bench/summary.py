"""Summary of a run: kept with a finished run, computed for one under way."""

from typing import Any

from clearhead.bench.run_folder import RunFolder

# Version of the summary's keys and of its intervals and tests; that of another version is computed anew.
LAYOUT = 7


def summarise_run(run: RunFolder) -> dict[str, Any]:
    """Return values, intervals, tests, curves and costs, and write them once every shard is complete.

    They follow from the recorded values alone, so a summary in the layout of another version is computed anew.
    """
    kept = run.summary()
    if kept is not None and kept.get("layout") == LAYOUT:
        return kept
    # Imported here because it imports torch, which a kept summary does not need.
    from clearhead.bench.tables import compute_summary

    summary = {"layout": LAYOUT, **compute_summary(run, run.manifest)}
    # An unfinished run gets no file, by which a finished one is recognised.
    if summary["done"] == summary["shards"]:
        run.write_summary(summary)
    return summary

"""A small task and its run folder."""

from pathlib import Path

from clearhead.bench.run_folder import RunFolder

SENTENCES = [
    (0, "a bad , tedious film"),
    (1, "good heart , a good film"),
    (0, "never a good film"),
    (1, "a film with heart"),
    (0, "tedious , bad , bad"),
    (1, "never tedious"),
    (0, "a heart never so bad"),
    (1, "so good a film"),
    (0, "what a tedious heart"),
]


def values(folder: Path) -> list[dict]:
    return list(RunFolder(folder).values())


def forgetful(*_):
    raise AssertionError("a finished run must not compute anything")

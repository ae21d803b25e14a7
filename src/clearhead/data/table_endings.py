"""Which files are tables, by their ending; nothing is imported, so that the command line starts at once."""

from pathlib import Path

DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
JSON_ENDINGS = (".jsonl", ".ndjson")
ARROW_ENDINGS = (".arrow", ".feather", ".ipc")
TABLE_ENDINGS = (*DELIMITERS, *JSON_ENDINGS, ".parquet", *ARROW_ENDINGS)


def file_suffix(path: Path) -> str:
    """Return the suffix without .gz in lower case: '.tsv' for x.tsv and x.tsv.gz."""
    name = path.name.casefold().removesuffix(".gz")
    return Path(name).suffix

"""Which INPUT arguments are meant as files, and what to say if they are none."""

from collections import Counter
from pathlib import Path

from clearhead.data.table_endings import TABLE_ENDINGS, file_suffix
from clearhead.errors import BadFile

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
READABLE_ENDINGS = (".txt", *TABLE_ENDINGS, *IMAGE_ENDINGS)
# Endings of files that people have but that are not read, with what to do.
OTHER_ENDINGS = {
    ".xlsx": "an Excel file: save it as .csv (UTF-8), or read it with pandas and give the column to clearhead.explain",
    ".docx": "a Word document: save it as .txt",
    ".pdf": "a PDF file: save its text as .txt",
    ".html": "a web page: save its text as .txt",
    ".json": "a JSON file: write one object per line, as .jsonl",
}
OTHER_ENDINGS |= {".xls": OTHER_ENDINGS[".xlsx"], ".ods": "a spreadsheet: save it as .csv (UTF-8)"}
OTHER_ENDINGS |= {".doc": OTHER_ENDINGS[".docx"], ".odt": OTHER_ENDINGS[".docx"], ".htm": OTHER_ENDINGS[".html"]}
NAMED_ENDINGS = (".md", ".rtf", ".xml", ".zip", ".gz", ".log", ".heic", ".svg")


def refuse_missing_file(argument: str, advice: str = "add --as-text") -> None:
    """Raise BadFile for what can only be meant as a file; `advice` says what to do if it is a text."""
    # Everything else that is no file is a text.
    if _is_path(argument):
        suggestion = _suggest_file(Path(argument))
        raise BadFile(f"There is no file '{argument}'.{suggestion} If it is a text, {advice}.")


def refuse_folder(path: Path, argument: str) -> None:
    """Raise BadFile for a folder."""
    # Not read as a whole: a folder may hold anything.
    if path.is_dir():
        pattern = f"{argument.rstrip('/')}/*{_find_ending(path)}"
        raise BadFile(f"'{argument}' is a folder: name the files in it, for example {pattern}.")


def _find_ending(folder: Path) -> str:
    """Return the ending that most of the readable files in a folder have."""
    endings = Counter(filter(READABLE_ENDINGS.__contains__, map(get_ending, folder.iterdir())))
    # A folder without any may hold texts under other names.
    return max(endings, key=endings.__getitem__, default=".txt")


def get_ending(path: Path) -> str:
    """Return the ending of a file in small letters."""
    return path.suffix.casefold()


def names_table(argument: str) -> bool:
    """Return whether an argument is the name of a table."""
    return file_suffix(Path(argument)) in TABLE_ENDINGS


def _is_path(argument: str) -> bool:
    """Return whether this is meant as a file: one word, with the ending of a file or the look of a path."""
    if _has_blank(argument) or "://" in argument:
        return False
    return _has_file_ending(argument) or _begins_path(argument) or _looks_like_path(argument)


def _looks_like_path(argument: str) -> bool:
    """Return whether a word with slashes names a file: 'and/or' does not, 'data/my_file' and 'folder/x' do."""
    folder, slash, name = argument.rpartition("/")
    if not slash or not folder.strip("/"):
        return False
    return "_" in name or path_exists(_first_folder(argument))


def _has_blank(argument: str) -> bool:
    return any(blank in argument for blank in " \n\t")


def _has_file_ending(argument: str) -> bool:
    return get_ending(Path(argument)) in (*READABLE_ENDINGS, *OTHER_ENDINGS, *NAMED_ENDINGS)


def _begins_path(argument: str) -> bool:
    return argument.startswith(("./", "../", "~/")) or _is_absolute_path(argument)


def _is_absolute_path(argument: str) -> bool:
    # '/film' and '/r/movies' are texts, unless the first folder exists.
    if not argument.startswith("/") or argument.count("/") < 2:
        return False
    return path_exists(_first_folder(argument))


def _first_folder(path: str) -> Path:
    folders = Path(path).parts
    # The root of an absolute path is a part of its own, and is always there.
    return Path(*folders[: 2 if path.startswith("/") else 1])


def path_exists(path: Path) -> bool:
    """Return whether there is such a file or folder."""
    try:
        return path.exists()
    except (OSError, ValueError):
        # A text can be too long, or hold characters that no path may have.
        return False


def _suggest_file(path: Path) -> str:
    from difflib import get_close_matches

    close = get_close_matches(path.name, _list_names(path.parent), n=1)
    if close:
        return f" Did you mean '{path.with_name(close[0])}'?"
    return " Check the name and the folder."


def _list_names(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return [path.name for path in folder.iterdir()]

"""Pictures in folders and tables, with classes and masks."""

import io
from pathlib import Path
from typing import Any

from clearhead.data.columns import label_value
from clearhead.data.parquet import column_names, read_parquet
from clearhead.data.task import BadRow, Example, Mask, Picture, Task, build_task, reader
from clearhead.errors import BadFile, BadInput
from clearhead.model import images as photo

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
PET, BORDER = 1, 3


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))


def _has_masks(path: Path) -> bool:
    return (path / "images").is_dir() and (path / "masks").is_dir()


@reader(_has_masks)
def image_masks(path: Path, *, limit: int | None = None) -> Task:
    """A folder with images/ and masks/ of the same names and sizes; in a mask everything but 0 is the object."""
    if not _has_masks(path):
        raise BadFile(f"'{path}' must hold the folders images and masks.")
    masks = {one.relative_to(path / "masks").with_suffix(""): one for one in _files(path / "masks")}
    folder = path / "images"
    rows = [_masked(number, one, folder, masks) for number, one in enumerate(_files(folder), 1)]
    return build_task(path.name, rows, limit=limit)


def _masked(number: int, picture: Path, folder: Path, masks: dict[Path, Path]) -> Example | BadRow:
    name = picture.relative_to(folder)
    mask = masks.get(name.with_suffix(""))
    if mask is None:
        return BadRow(number, f"'{name}' has no mask")
    try:
        note = photo.orientation_after(mask, picture, (f"'{mask.name}'", f"'{name}'"))
    except BadInput as error:
        return BadRow(number, str(error))
    return Example(str(name), picture, _folder_label(name), Mask(mask, note=note))


@reader(
    lambda path: (
        path.is_dir() and not any((path / name).exists() for name in ("dataset_info.json", "dataset_dict.json"))
    )
)
def image_folder(path: Path, *, limit: int | None = None) -> Task:
    """A folder of pictures, with a subfolder per class; bad rows by the number of the file in alphabetical order."""
    files = [one for one in _files(path) if one.suffix.casefold() in ENDINGS]
    if not files:
        raise BadFile(f"'{path}' holds no pictures ({', '.join(ENDINGS)}).")
    return build_task(path.name, [_pictured(number, one, path) for number, one in enumerate(files, 1)], limit=limit)


def _pictured(number: int, picture: Path, folder: Path) -> Example | BadRow:
    name = picture.relative_to(folder)
    try:
        photo.image_header(picture, f"'{picture.name}'")
    except BadInput as error:
        return BadRow(number, str(error))
    return Example(str(name), picture, _folder_label(name))


def _folder_label(name: Path) -> int | str | None:
    return label_value(name.parts[0], "folder") if len(name.parts) > 1 else None


def _has_trimaps(path: Path) -> bool:
    return path.suffix.casefold() == ".parquet" and {"image", "trimap"} <= set(column_names(path))


@reader(_has_trimaps)
def oxford_pets(path: Path, *, label_column: str = "breed_id", limit: int | None = None) -> Task:
    """Oxford-IIIT Pets as Parquet: picture, breed and trimap (1 pet, 2 background, 3 border, which takes no part)."""
    rows = read_parquet(path)
    names = {row.get("breed_id"): row.get("breed") for row in rows}
    ordered = tuple(str(names[number]) for number in sorted(number for number in names if number is not None))
    found = [_pet(number, row, label_column) for number, row in enumerate(rows, 1)]
    return build_task(path.name, found, limit=limit, labels=ordered if label_column == "breed_id" else None)


def _pet(number: int, row: dict[str, Any], label_column: str) -> Example | BadRow:
    for column in ("image", "trimap"):
        if not isinstance(row.get(column), bytes) or not row[column]:
            return BadRow(number, f"no picture in column '{column}'")
    try:
        label = label_value(row.get(label_column), label_column)
        files = (io.BytesIO(row["trimap"]), io.BytesIO(row["image"]))
        note = photo.orientation_after(*files, ("its trimap", "the picture"))
    except BadInput as error:
        return BadRow(number, str(error))
    mask = Mask(Picture(row["trimap"]), foreground=(PET,), unlabelled=(BORDER,), note=note)
    return Example(str(row.get("name", number)), Picture(row["image"]), label, mask)

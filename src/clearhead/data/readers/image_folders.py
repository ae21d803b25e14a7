"""Read images from folders and tables, with classes and masks."""

import io
from pathlib import Path
from typing import Any

from clearhead.data.columns import parse_label
from clearhead.data.parquet import read_column_names, read_parquet
from clearhead.data.readers.hugging_face import is_saved_dataset
from clearhead.data.task import BadRow, Example, Mask, Picture, Task, build_task, reader, skip_invalid
from clearhead.errors import BadFile, BadInput
from clearhead.model import images

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
# Values of a trimap; 2 is the background.
TRIMAP_PET = 1
TRIMAP_BORDER = 3


def _has_masks(path: Path) -> bool:
    return (path / "images").is_dir() and (path / "masks").is_dir()


@reader(_has_masks)
def image_masks(path: Path, *, limit: int | None = None) -> Task:
    """A folder with images/ and masks/ of the same names and sizes; in a mask everything but 0 is the object."""
    _require_masks(path)
    masks = _index_masks(path / "masks")
    files = enumerate(_list_files(path / "images"), 1)
    rows = [_make_masked_example(number, file, path / "images", masks) for number, file in files]
    return build_task(path.name, rows, limit=limit)


def _require_masks(path: Path) -> None:
    if not _has_masks(path):
        raise BadFile(f"'{path}' must hold the folders images and masks.")


def _index_masks(folder: Path) -> dict[Path, Path]:
    # Paired without the suffix: a JPEG image may have a PNG mask.
    return {_relative_stem(file, folder): file for file in _list_files(folder)}


def _make_masked_example(number: int, file: Path, folder: Path, masks: dict[Path, Path]) -> Example | BadRow:
    name = file.relative_to(folder)
    try:
        mask = _make_mask(masks.get(name.with_suffix("")), file, f"'{name}'")
    except BadInput as error:
        return BadRow(number, str(error))
    return Example(str(name), file, _folder_label(name), mask)


def _make_mask(mask: Path | None, image: Path, name: str) -> Mask:
    """Return the mask of an image that messages call `name`."""
    if mask is None:
        raise BadInput(f"{name} has no mask")
    orientation = images.orientation_after(mask, image, (f"'{mask.name}'", name))
    return Mask(mask, orientation=orientation)


@reader(lambda path: path.is_dir() and not is_saved_dataset(path))
def image_folder(path: Path, *, limit: int | None = None) -> Task:
    """A folder of pictures, with a subfolder per class; bad rows by the number of the file in alphabetical order."""
    files = list(filter(_is_image_file, _list_files(path)))
    if not files:
        raise BadFile(f"'{path}' holds no images ({', '.join(IMAGE_SUFFIXES)}).")
    rows = [_make_image_example(number, file, path) for number, file in enumerate(files, 1)]
    return build_task(path.name, rows, limit=limit)


def _is_image_file(file: Path) -> bool:
    return file.suffix.casefold() in IMAGE_SUFFIXES


def _make_image_example(number: int, file: Path, folder: Path) -> Example | BadRow:
    name = file.relative_to(folder)
    # Damaged files are skipped now, not in the middle of a run; only the header is read.
    try:
        images.read_image_header(file, f"'{file.name}'")
    except BadInput as error:
        return BadRow(number, str(error))
    return Example(str(name), file, _folder_label(name))


def _has_trimaps(path: Path) -> bool:
    return path.suffix.casefold() == ".parquet" and {"image", "trimap"} <= set(read_column_names(path))


@reader(_has_trimaps)
def oxford_pets(path: Path, *, label_column: str = "breed_id", limit: int | None = None) -> Task:
    """Oxford-IIIT Pets as Parquet: picture, breed and trimap (1 pet, 2 background, 3 border, which takes no part)."""
    rows = read_parquet(path)
    examples = [_make_pet_example(number, row, label_column) for number, row in enumerate(rows, 1)]
    return build_task(path.name, examples, limit=limit, labels=_class_names(rows, label_column))


def _class_names(rows: list[dict[str, Any]], label_column: str) -> tuple[str, ...] | None:
    # Another column holds names or indices of its own, not those of the breeds.
    if label_column != "breed_id":
        return None
    return _breed_names(rows)


def _breed_names(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the names of the breeds in the order of their ids."""
    names = _collect_breeds(rows)
    return tuple(str(names[breed_id]) for breed_id in sorted(names))


def _collect_breeds(rows: list[dict[str, Any]]) -> dict[Any, Any]:
    names = {row.get("breed_id"): row.get("breed") for row in rows}
    # From rows without a breed, which are skipped later.
    names.pop(None, None)
    return names


@skip_invalid
def _make_pet_example(number: int, row: dict[str, Any], label_column: str) -> Example:
    _require_images(row)
    label = parse_label(row.get(label_column), label_column)
    return Example(str(row.get("name", number)), Picture(row["image"]), label, _make_trimap_mask(row))


def _require_images(row: dict[str, Any]) -> None:
    for column in ("image", "trimap"):
        if not _has_bytes(row, column):
            raise BadInput(f"no image in column '{column}'")


def _has_bytes(row: dict[str, Any], column: str) -> bool:
    content = row.get(column)
    return isinstance(content, bytes) and bool(content)


def _make_trimap_mask(row: dict[str, Any]) -> Mask:
    return Mask(Picture(row["trimap"]), (TRIMAP_PET,), (TRIMAP_BORDER,), _trimap_orientation(row))


def _trimap_orientation(row: dict[str, Any]) -> int:
    trimap = io.BytesIO(row["trimap"])
    image = io.BytesIO(row["image"])
    return images.orientation_after(trimap, image, ("its trimap", "the image"))


def _relative_stem(file: Path, folder: Path) -> Path:
    return file.relative_to(folder).with_suffix("")


def _list_files(folder: Path) -> list[Path]:
    return sorted(filter(_is_visible_file, folder.rglob("*")))


def _is_visible_file(path: Path) -> bool:
    # Hidden files are those of the system, such as .DS_Store.
    return path.is_file() and not path.name.startswith(".")


def _folder_label(name: Path) -> int | str | None:
    """Return the label of a file: the first folder of its relative path."""
    if len(name.parts) == 1:
        return None
    return parse_label(name.parts[0], "folder")

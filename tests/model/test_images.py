"""Images: orientation, colour depth, sizes, and files that are damaged."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from helpers.pictures import cut, photo
from helpers.tiny_models import THREE_TOKENS, image_processor, model, network
from PIL import Image, ImageOps

import clearhead
from clearhead.errors import BadInput
from clearhead.model.image_inputs import input_box
from clearhead.model.images import to_rgb


def damaged(folder):
    """A PNG that begins well, but whose later parts claim to be of no known kind."""
    photo(300, 300).save(folder / "damaged.png")
    begun, first, later = (folder / "damaged.png").read_bytes().partition(b"IDAT")
    (folder / "damaged.png").write_bytes(begun + first + later.replace(b"IDAT", b"\xfc\xf4d\xad"))
    return folder / "damaged.png"


def closed():
    picture = photo()
    picture.close()
    return picture


@pytest.mark.parametrize(
    ("make_input", "says"),
    [
        (lambda folder: folder / "missing.png", "no image at"),
        (lambda folder: Path(__file__), "cannot be read"),
        (lambda folder: "nul\0.png", "cannot be read"),
        (lambda folder: 3, "int"),
        (damaged, "damaged.png' cannot be read"),
        (cut, "cannot be read.*open it again"),
        (lambda folder: closed(), "cannot be read.*open it again"),
        (lambda folder: Image.new("RGB", (0, 5)), "no pixels: its size is 0 × 5"),
        (lambda folder: Image.new("F", (5, 5), 0.5), "mode F and values 0.5 … 0.5"),
        (lambda folder: Image.new("F", (5, 5), float("nan")), "from which white cannot be determined"),
        (lambda folder: Image.new("I", (5, 5), 40000), "scale them to 0 … 255"),
    ],
)
def test_image_mistakes(image, tmp_path, make_input, says):
    with pytest.raises(BadInput, match=says):
        clearhead.explain(image, [make_input(tmp_path)])


@pytest.mark.parametrize(
    ("family", "pixels", "says"),
    [
        ("vit", torch.zeros(1, 3, 16, 16), "takes images of 32 × 32 pixels, not 16 × 16"),
        ("swin", torch.zeros(1, 3, 16, 16), "takes images of 32 × 32 pixels, not 16 × 16"),
        ("clip", torch.zeros(1, 3, 64, 32), "takes images of 32 × 32 pixels, not 64 × 32"),
        ("vit", torch.zeros(1, 4, 32, 32), r"takes \(inputs, 3, rows, columns\)"),
        ("clip", torch.zeros(1, 32, 32, 3), r"takes \(inputs, 3, rows, columns\)"),
        ("vit", torch.zeros(3, 32, 32), r"shape \(3, 32, 32\)"),
        ("vit", torch.zeros(1, 3, 32, 32).int(), "a floating-point type is needed"),
    ],
)
def test_pixels_that_do_not_fit(family, pixels, says):
    with pytest.raises(BadInput, match=says):
        clearhead.explain(model(family), {"pixel_values": pixels}, "gradient")


def test_pixels_of_another_size_are_taken_where_the_network_takes_them():
    assert len(clearhead.explain(model("dinov2"), {"pixel_values": torch.zeros(1, 3, 16, 16)}, "gradient")) == 1


def test_ids_for_an_image_model(image):
    with pytest.raises(BadInput, match="takes images: give pixel_values, not input_ids"):
        clearhead.explain(image, THREE_TOKENS)


def test_pictures_of_two_sizes_that_nobody_resizes():
    explained = clearhead.load(network("dinov2"), image_processor(do_resize=False))
    pictures = [photo(32, 32), photo(48, 40)]
    with pytest.raises(BadInput, match=r"different sizes \(32×32, 48×40\).*batch_size=1"):
        clearhead.explain(explained, pictures, "gradient")
    assert len(clearhead.explain(explained, pictures, "gradient", batch_size=1)) == 2


@pytest.mark.parametrize("note", range(1, 9))
def test_a_photo_is_explained_as_people_see_it(image, tmp_path, note):
    exif = Image.Exif()
    exif[274] = note
    photo().save(tmp_path / "photo.png", exif=exif)
    seen = ImageOps.exif_transpose(Image.open(tmp_path / "photo.png"))
    expected = clearhead.explain(image, seen, "rollout")
    for source in (tmp_path / "photo.png", Image.open(tmp_path / "photo.png")):
        explanation = clearhead.explain(image, source, "rollout")
        np.testing.assert_array_equal(explanation.relevance, expected.relevance)
        np.testing.assert_array_equal(explanation.image, seen)
        assert explanation.heatmap().shape == seen.size[::-1]
        assert explanation.image.getexif().get(274, 1) == 1


def test_a_photo_with_a_broken_note_stands_as_it_is(image):
    picture = photo()
    picture.info["exif"] = b"Exif\0\0nonsense"
    np.testing.assert_array_equal(clearhead.explain(image, picture, "rollout").image, photo())


@pytest.mark.parametrize("mode", ["I;16", "I;16B", "I", "F"])
def test_pictures_of_more_bits_are_scaled(image, mode):
    grey = np.asarray(photo().convert("L"))
    stored = {"I;16": (grey * np.uint16(257)), "I;16B": (grey * np.uint16(257)).astype(">u2")}
    values = stored.get(mode, grey.astype(np.int32 if mode == "I" else np.float32))
    picture = Image.fromarray(values)
    assert picture.mode == mode
    np.testing.assert_array_equal(np.asarray(clearhead.explain(image, picture, "rollout").image)[..., 0], grey)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_images_are_put_on_white(mode):
    hidden_red = Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    hidden_red.putpixel((1, 0), (0, 0, 0, 255))
    seen = to_rgb(hidden_red.convert(mode))
    assert [seen.getpixel((column, 0)) for column in range(2)] == [(255, 255, 255), (0, 0, 0)]


@pytest.mark.parametrize("size", [(400, 200), (200, 330), (90, 100), (800, 300)])
def test_the_box_of_a_crop_from_multiples_is_where_its_pixels_come_from(size):
    processor = transformers.BridgeTowerImageProcessorPil(
        size={"shortest_edge": 64}, crop_size={"shortest_edge": 64}, do_normalize=False, size_divisor=32
    )
    width, height = size
    # Red grows with the column and green with the row, so that colours tell where a pixel lies.
    columns = np.tile(np.linspace(0, 255, width), (height, 1))
    rows = np.tile(np.linspace(0, 255, height)[:, None], (1, width))
    picture = Image.fromarray(np.stack([columns, rows, rows], 2).astype(np.uint8))
    pixels = processor(images=picture, return_tensors="pt")["pixel_values"][0].numpy()
    left, top, right, bottom = input_box(processor, size, (64, 64))
    # Of the middle, which is no padding.
    expected = ((left + (right - left) * 32.5 / 64) / width, (top + (bottom - top) * 32.5 / 64) / height)
    assert tuple(pixels[:2, 32, 32]) == pytest.approx(expected, abs=0.02)
    across = (right - left) * 16 / 64 / width
    assert pixels[0, 32, 40] - pixels[0, 32, 24] == pytest.approx(across, abs=0.02)

"""Views: every character is kept and shown, colours are readable, pictures have the right size."""

import io
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from xml.dom import minidom

import numpy as np
import pytest
from PIL import Image
from samples import HOSTILE, explained, pictured, review

from clearhead.errors import BadInput, BadOption
from clearhead.explanation import Comparison, Explanations
from clearhead.model.inputs import open_image
from clearhead.views import (
    annotations as gold,
)
from clearhead.views import (
    blocks as layers,
)
from clearhead.views import (
    captions as wording,
)
from clearhead.views import (
    class_words as corpus,
)
from clearhead.views import (
    color,
    heatmap,
    html,
    markdown,
    notebook,
    terminal,
)
from clearhead.views import (
    fonts as font,
)
from clearhead.views import (
    line_chart as curves,
)
from clearhead.views import (
    static_image as picture,
)
from clearhead.views.json_record import line, record
from clearhead.views.text_spans import level_for, pieces, scored, strongest, visible

GOLDEN = Path(__file__).parent / "views"
TEXTS = {
    "english": "A joyless ,  tedious film\n\tthat Never finds its heart",
    "arabic": "هذا الفيلم ممل جدا ولا يستحق المشاهدة",
    "chinese": "这部电影非常无聊，我不推荐。",
    "emoji": "so good 👩‍👩‍👧 🏳️‍🌈 ❤️!",
    "combining": "cafe\u0301 nai\u0308ve Z\u0351\u036b\u0343a",
    "hostile": HOSTILE,
}


class Reader(HTMLParser):
    """What a browser would show of a text: the characters inside paragraphs of either direction."""

    VOID = ("br", "img", "input", "meta", "link")

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.paragraphs: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "p" and dict(attrs).get("dir") == "auto":
            self.paragraphs.append("")
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.inside = self.inside and tag != "p"

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.paragraphs[-1] += data


def shown(source: str) -> Reader:
    reader = Reader()
    reader.feed(source)
    reader.close()
    assert reader.open == []
    return reader


# --- colour ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", [color.LIGHT, color.DARK])
def test_ink_reads_on_every_step(theme):
    for place in range(-color.STEPS, color.STEPS + 1):
        assert color.contrast(theme.ink, color.background(place, theme)) >= 4.5
    assert color.contrast(theme.faint, theme.paper) >= 4.5
    assert min(color.contrast(line, theme.paper) for line in (theme.above, theme.below)) >= 3


def test_contrast_is_the_one_of_wcag():
    assert color.contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert color.contrast((119, 119, 119), (255, 255, 255)) == pytest.approx(4.48, abs=0.01)


def test_ends_stay_apart_for_the_colour_blind():
    """Machado's matrices for the three kinds of missing cones, on linear light."""
    kinds = {
        "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
        "deutan": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
        "tritan": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
    }
    for theme, matrix in product((color.LIGHT, color.DARK), kinds.values()):
        for place in range(4, color.STEPS + 1):
            ends = [np.array(color.background(sign * place, theme)) / 255 for sign in (1, -1)]
            seen = [np.clip(np.array(matrix) @ end**2.2, 0, 1) ** (1 / 2.2) for end in ends]
            assert np.abs(seen[0] - seen[1]).max() > 0.1


def test_steps_follow_sign_and_size():
    assert [color.step(value, 2.0) for value in (-2, -1, 0, 0.1, 2, 9, float("nan"))] == [-9, -4, 0, 0, 9, 9, 0]
    assert color.step(1.0, 0.0) == 0


# --- pieces ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["word", "token"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_pieces_joined_are_the_text(text, level):
    (part,) = pieces(explained(text), level)
    assert "".join(piece.text for piece in part) == text


@pytest.mark.parametrize("text", [*TEXTS.values(), ("a joyless film", "never again")])
def test_words_are_those_of_the_explanation(text):
    one = explained(text)
    wanted = [(word.text, pytest.approx(word.relevance)) for word in one.words()]
    assert [(piece.text, piece.relevance) for piece in scored(one, "word")] == wanted


def test_tokens_that_share_characters_become_one_piece():
    twice = explained(
        "ok 🙂",
        tokens=("[CLS]", "ok", "ð", "Ł", "[SEP]"),
        relevance=np.array([0, 1, 2, 3, 0.0]),
        special=np.array([True, False, False, False, True]),
        offsets=((0, 0), (0, 2), (3, 4), (3, 4), (0, 0)),
    )
    assert [(piece.text, piece.relevance) for piece in scored(twice, "token")] == [("ok", 1.0), ("🙂", 5.0)]


def test_scripts_without_blanks_are_shown_by_token():
    assert level_for(review()) == "word"
    assert level_for(explained("这部电影非常无聊我不推荐" * 3)) == "token"
    assert level_for(replace(review(), text=None, offsets=None)) == "token"


def test_strongest_counts_both_signs():
    assert [piece.text for piece in strongest(review(), 4)] == ["tedious", "joyless", "Never", "heart"]


def test_hidden_characters_are_spelled_out_and_joiners_kept():
    assert visible("a\u202eb") == "a⟨U+202E⟩b"
    assert visible("\x1b[31m") == "⟨U+001B⟩[31m"
    assert visible("👩‍👧") == "👩‍👧"
    assert visible("a\u200db") == "a⟨U+200D⟩b"


# --- HTML ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [text for name, text in TEXTS.items() if name != "hostile"])
def test_html_shows_the_text_at_both_levels(text):
    assert shown(html.card(explained(text))).paragraphs == [text, text]


def test_html_shows_hostile_text_literally():
    reader = shown(html.page([html.card(explained(HOSTILE))], HOSTILE))
    assert "script" not in reader.tags
    # Controls and lone surrogates are not allowed in HTML and are spelled out; the rest is there as it was.
    expected = HOSTILE.replace("\x1b", "⟨U+001B⟩").replace("\x00", "⟨U+0000⟩").replace("\ud800", "⟨U+D800⟩")
    assert reader.paragraphs == [expected, expected]


@pytest.mark.parametrize("field", ["label", "model", "method"])
def test_html_escapes_names_too(field):
    source = html.page([html.card(review(**{field: HOSTILE})), html.classes([review(**{field: HOSTILE})])], "x")
    assert "script" not in shown(source).tags
    source.encode()


def test_html_of_hostile_tokens():
    bad = review()
    bad = review(tokens=tuple(HOSTILE for _ in bad.tokens), layers=np.ones((2, len(bad.tokens))))
    assert "script" not in shown(html.page([html.card(bad), html.methods({HOSTILE: bad})], "x")).tags


def test_html_needs_nothing_from_outside():
    source = html.page([html.card(review()), html.card(pictured())], "x")
    assert "http://" not in source
    assert "https://" not in source
    assert "default-src 'none'" in source


def test_style_stays_below_its_class():
    from clearhead.views.html_parts import style

    rules = style().removeprefix("<style>").removesuffix("</style>").replace("@media print{", "")
    selectors = [part.rpartition("{")[0] for part in rules.split("}") if "{" in part]
    assert len(selectors) > 30
    for selector in (one.strip() for several in selectors for one in several.split(",.")):
        assert "clearhead" in selector or selector.startswith("vscode")


def test_html_of_a_long_text_is_small():
    words = " ".join(f"word{place}" for place in range(1005))
    long = explained(words)
    assert (~long.special).sum() == 2000
    assert len(html.page([html.card(long)], "long").encode()) < 1_000_000


def test_many_explanations_become_one_page_with_their_words():
    many = [review(label=label) for label in ("negative", "positive") for _ in range(30)]
    bodies = html.cards(many)
    assert len(bodies) == 61
    assert "Words that speak for each class" in bodies[0]


def test_without_text_tokens_are_shown():
    bare = replace(explained("a film"), text=None, offsets=None)
    assert shown(html.card(bare)).paragraphs == ["a film"]


def test_notebook_shows_explanations_lists_and_comparisons():
    one = review()
    for fragment in (
        one._repr_html_(),
        Explanations([one, one])._repr_html_(),
        Comparison({"att-cat": one})._repr_html_(),
        Comparison({"att-cat": [one, one], "rollout": [one, one]})._repr_html_(),
    ):
        reader = shown(fragment)
        assert not {"html", "body", "script"} & set(reader.tags)
        assert one.text in reader.paragraphs


@pytest.mark.parametrize("text", ["a joyless , tedious film that Never finds", *TEXTS.values()])
def test_a_notebook_cell_is_no_larger_than_its_data(text):
    """The data is the record, which a program would keep; a cell has no style sheet, so it costs no more."""
    count = len(explained(text).tokens)
    one = explained(text, relevance=np.random.default_rng(0).normal(size=count), layers=np.ones((6, count)))
    data = len(line(one).encode("utf-8", "replace"))
    assert len(notebook.fragment(one).encode("utf-8", "replace")) <= data
    assert len(notebook.listing([one] * 10).encode("utf-8", "replace")) <= 10 * data
    assert len(notebook.comparison({"a": one, "b": one}).encode("utf-8", "replace")) <= 2 * data
    assert "<style" not in notebook.fragment(one)


def test_a_photo_in_a_notebook_costs_little_more_than_the_photo():
    noise = np.random.default_rng(0).integers(0, 255, (300, 400, 3), dtype=np.uint8)
    one = pictured(size=(400, 300), image=Image.fromarray(noise))
    photo = len(heatmap.data_url(heatmap.small(heatmap.photograph(one)), "JPEG"))
    assert len(notebook.fragment(one)) < photo + 30_000


@pytest.mark.parametrize(
    ("paper", "ink"),
    [
        ((255, 255, 255), (33, 33, 33)),
        ((17, 17, 17), (224, 224, 224)),
        ((30, 30, 30), (204, 204, 204)),
        ((56, 56, 56), (213, 213, 213)),
    ],
    ids=["light", "jupyter-dark", "vscode-dark", "colab-dark"],
)
def test_the_ink_of_a_notebook_reads_on_every_step(paper, ink):
    for tint in color.TINTS:
        behind = tuple(int(digit * 2, 16) for digit in tint[1:])
        for place in range(color.STEPS + 1):
            assert color.contrast(ink, color.mix(paper, behind, place / 15)) >= 4.5


def cases() -> dict[str, str]:
    pair = explained(('He said <b>"no"</b>', "a\u202eb & c"), label="a < b", probability=None)
    small = explained("a tedious film", layers=np.array([[0, 0.1, 0.2, -0.1, 0.05, 0], [0, 0.1, 0.4, 0.2, -0.2, 0]]))
    return {
        "review": html.card(review()),
        "pair": html.card(pair),
        "blocks": html.card(small, rollout=explained("a tedious film", method="rollout")),
    }


@pytest.mark.parametrize("name", ["review", "pair", "blocks"])
def test_golden_html(name):
    """CLEARHEAD_GOLDEN=write writes what is there now; look at the difference before committing it."""
    file = GOLDEN / f"{name}.html"
    now = cases()[name].replace("><", ">\n<") + "\n"
    if os.environ.get("CLEARHEAD_GOLDEN") == "write":
        file.write_text(now, "utf-8")
    assert now == file.read_text("utf-8")


# --- layers, gold, curves, corpus ------------------------------------------------------------------------------


def test_layers_have_a_row_per_block_then_rollout_and_sum():
    one = review(layers=np.random.default_rng(0).normal(size=(3, 14)))
    assert len(one.tokens) == 14
    table = layers.heat_map(one, review(method="rollout"))
    names = [part.partition("<")[0] for part in table.split('<th scope="row">')[1:]]
    assert names == ["block 2", "block 1", "block 0", "Rollout", "Sum"]
    assert table.count("<td") == 5 * 14


def test_layers_of_long_texts_keep_the_strongest_tokens():
    long = explained(" ".join(["film"] * 100))
    table = layers.heat_map(explained(str(long.text), layers=np.ones((2, 102))))
    assert "42 less relevant tokens are left out" in table


def test_layers_need_scores_per_block():
    with pytest.raises(BadOption, match="no scores per block"):
        layers.heat_map(review())
    with pytest.raises(BadOption, match="another input"):
        layers.heat_map(review(layers=np.ones((2, 14))), explained("a film"))


@pytest.mark.parametrize("one", [review(), pictured()], ids=["text", "photo"])
def test_every_card_and_terminal_tells_the_special_tokens(one):
    assert "Special tokens: [CLS] +" in html.card(one)
    assert "special  [CLS] +" in terminal.render(one)


def test_gold_counts_marked_words():
    found = gold.text_with_rationale([review()], [(2, 9), (13, 20)])
    assert "2 of the 2 most relevant words are marked" in found
    assert shown(found).paragraphs[0] == review().text
    with pytest.raises(BadInput, match="outside the text"):
        gold.text_with_rationale([review()], [(2, 900)])


def test_gold_has_the_scale_of_the_classes_and_says_it():
    both = [review(), review(label="positive", relevance=review().relevance / 4)]
    word = re.compile(r'<span class="(\w+)" title="[^"]*">(\w+)</span>')
    legend = re.compile(r'<p class="ch-legend">.*?</p>')
    classes, marked = html.classes(both), gold.text_with_rationale(both, [(2, 9)])
    assert word.findall(marked) == word.findall(classes) != []
    assert legend.findall(marked) == legend.findall(classes) != []
    photos = [pictured(), pictured(label="dog", relevance=pictured().relevance / 4)]
    marked = gold.image_with_mask(photos, np.ones((40, 60)))
    assert legend.findall(marked) == legend.findall(html.classes(photos)) != []


@pytest.mark.parametrize("note", [1, 3, 6])
def test_a_mask_turns_with_its_photo(tmp_path, note):
    exif = Image.Exif()
    exif[274] = note
    pixels = np.zeros((40, 60), np.uint8)
    pixels[5:10, 40:50] = 255
    Image.fromarray(np.stack([pixels] * 3, -1)).save(tmp_path / "photo.png", exif=exif)
    Image.fromarray(pixels).save(tmp_path / "mask.png")
    seen = np.asarray(open_image(tmp_path / "photo.png"))[..., 0] > 0
    np.testing.assert_array_equal(gold.mask_of(tmp_path / "mask.png", tmp_path / "photo.png"), seen)
    Image.fromarray(pixels[:30]).save(tmp_path / "mask.png")
    with pytest.raises(BadInput, match="its mask 60×30"):
        gold.mask_of(tmp_path / "mask.png", tmp_path / "photo.png")


def test_gold_beside_a_photo():
    mask = np.zeros((40, 60))
    mask[10:20, 30:40] = 1
    assert "% of the positive relevance lies inside" in gold.image_with_mask([pictured()], mask)
    with pytest.raises(BadInput, match=r"mask has shape \(4, 4\)"):
        gold.image_with_mask([pictured()], np.ones((4, 4)))


def test_curves_draw_every_line_inside_the_chart():
    one = curves.Curve("att-cat", (0.0, 0.5, 1.0), (0.9, 0.2, 0.1), (0.8, 0.1, 0.0), (1.0, 0.3, 0.2))
    chart = curves.chart([one, curves.Curve("<random>", (0.0, 1.0), (0.9, 0.1))], title="Hiding")
    minidom.parseString(chart[chart.index("<svg") : chart.index("</svg>") + 6])
    assert "<random>" not in chart
    points = chart.split('<polyline points="')[1].partition('"')[0]
    ys = [float(point.partition(",")[2]) for point in points.split()]
    assert ys == sorted(ys)
    assert 0 < ys[0] < ys[-1] < curves.HEIGHT
    with pytest.raises(BadInput, match="as many values as shares"):
        curves.chart([curves.Curve("x", (0.0,), ())], title="x")


def test_corpus_sums_words_and_weighs_them():
    many = [review(), review(), explained("Heart, heart.", label="positive", relevance=np.full(6, 0.5))]
    tops = corpus.top_words(many)
    assert tops["negative"][0] == ("tedious", pytest.approx(1.22))
    assert tops["positive"] == [("heart", pytest.approx(2.0))]
    weights = corpus.inverse_document_frequency(["tedious", "tedious", "joyless"])
    assert weights["joyless"] == pytest.approx(np.log(3))
    assert corpus.top_words(many, weights=weights)["negative"][0][0] == "joyless"


def test_overlap_counts_all_pairs():
    tops = {"a": [("x", 1.0), ("y", 0.5)], "b": [("x", 1.0), ("z", 1.0)], "c": [("q", 1.0), ("z", 1.0)]}
    assert corpus.overlap(tops, 2) == (2, 2 / 6)
    assert "33.3 %" in corpus.summary(tops)
    assert corpus.overlap({"a": tops["a"]}, 2) == (0, 0.0)


def test_overlap_is_a_share_of_the_words_there_are():
    tops = {"a": [("x", 1.0), ("y", 0.5)], "b": [("x", 1.0), ("z", 1.0), ("q", 0.5)], "c": []}
    assert corpus.overlap(tops, 10) == (1, 1 / 2)
    assert corpus.overlap_line(tops) == "Of the top 3, two classes share 1 (50.0 %)."
    assert '<th scope="row" dir="auto">3</th><td class="ch-n">1</td><td class="ch-n">50.0 %</td>' in corpus.summary(
        tops
    )
    many = {name: [(f"{name[0]}{place}", 1.0) for place in range(23)] for name in ("a", "b")}
    assert corpus.steps(many) == [5, 10, 20, 23]
    assert corpus.overlap_line(many).startswith("Of the top 10, ")
    assert "Overlap" not in corpus.summary({"a": [], "b": []})


def test_word_clouds_repeat():
    wordcloud = pytest.importorskip("clearhead.views.wordcloud")
    pytest.importorskip("wordcloud", reason="the clouds extra is not installed")
    words = [("tedious", 2.0), ("joyless", 1.0)]
    assert wordcloud.cloud(words).tobytes() == wordcloud.cloud(words).tobytes()
    with pytest.raises(BadInput, match="positive weight"):
        wordcloud.cloud([("x", -1.0)])


# --- pictures --------------------------------------------------------------------------------------------------


def test_overlay_has_the_original_size_and_leaves_the_rest_unshaded():
    one = pictured()
    grey, drawn = (np.asarray(image).astype(int) for image in (heatmap.greyed(one), heatmap.overlay(one)))
    assert drawn.shape == (40, 60, 3)
    changed = np.abs(drawn - grey).sum(-1)
    assert changed[:, :10].max() == changed[:, 50:].max() == 0
    row, column = np.unravel_index(changed.argmax(), changed.shape)
    assert (10 <= row < 20) and (30 <= column < 40)
    assert drawn[15, 35, 0] > drawn[15, 35, 2] and drawn[35, 15, 2] > drawn[35, 15, 0]


def test_patches_are_exact():
    share = heatmap.shares(pictured(), smooth=False)
    assert np.unique(share[10:20, 30:40]) == [1.0]
    assert share[9, 30] == share[20, 30] == 0
    assert np.isnan(share[:, :10]).all()


def test_opacity_nothing_is_the_photo_itself():
    one = pictured()
    assert heatmap.overlay(one, opacity=0.0).tobytes() == heatmap.photograph(one).tobytes()


def test_outline_surrounds_the_top():
    alpha = np.asarray(heatmap.outline(pictured(), top=10))[..., 3]
    assert alpha.any()
    assert alpha[15, 35] == 0 and alpha[2, 55] == 0


def test_the_outline_of_patches_follows_their_borders():
    inside = np.zeros((40, 60), dtype=bool)
    inside[10:20, 30:40] = True
    drawn = heatmap.outline(pictured(), top=5, smooth=False)
    assert drawn.tobytes() == heatmap.edge_of(inside).tobytes()
    one = heatmap.overlay(pictured(), smooth=False, top=5).convert("RGBA")
    plain = heatmap.overlay(pictured(), smooth=False).convert("RGBA")
    plain.alpha_composite(drawn)
    assert one.tobytes() == plain.tobytes()


def test_picture_of_a_text_and_of_photos():
    content = picture.png(picture.drawn([review()]))
    image = Image.open(io.BytesIO(content))
    assert image.width == picture.WIDTH * picture.SCALE
    painted = {one for _, one in image.convert("RGB").getcolors(1 << 20)}
    assert color.background(9, color.LIGHT) in painted
    assert color.LIGHT.below in painted
    assert picture.drawn([pictured()]).size == (60, 40)
    assert picture.drawn([pictured(), pictured(label="dog")]).width > 120


@pytest.mark.parametrize("several", [[review()], [explained(HOSTILE)], [pictured()], [pictured(), pictured()]])
def test_svg_is_well_formed_and_holds_the_words(several):
    drawn = picture.svg(several)
    parsed = minidom.parseString(drawn.encode())
    assert not parsed.getElementsByTagName("script")
    if several[0].text == review().text:
        texts = [node.firstChild.data for node in parsed.getElementsByTagName("text")]
        assert {"joyless", "tedious", "Never"} <= set(texts)


def order(text: str) -> list[str]:
    """The words of a picture from left to right."""
    boxes, _ = picture._layout([explained(text, label="", model="", diagnostics={})], visible)
    words = text.split()
    return [box.text for box in sorted(boxes, key=lambda box: box.x) if box.text in words]


def test_right_to_left_words_stand_from_the_right():
    assert order("שלוש מילים כאן") == ["כאן", "מילים", "שלוש"]
    assert order("סרט with English inside והרבה") == ["והרבה", "with", "English", "inside", "סרט"]
    assert order("he said שלוש מילים today") == ["he", "said", "מילים", "שלוש", "today"]


@pytest.fixture
def ascii_only(monkeypatch):
    """A machine whose fonts know ASCII, the brackets of names, and one mark."""
    font._face_for.cache_clear()
    monkeypatch.setattr(font, "_has", lambda face, character: character.isascii() or character in "⟨⟩…\u0301")
    yield
    font._face_for.cache_clear()


def test_what_no_font_can_write_is_named(ascii_only):
    assert font.spelled("ok 这 👩‍👧 ❤️!") == "ok ⟨U+8FD9⟩ ⟨woman⟩\u200d⟨girl⟩ ⟨heavy black heart⟩\ufe0f!"
    assert font.spelled("e\u0301 e\u0308") == "e\u0301 e⟨U+0308⟩"
    assert (font.is_whole("plain"), font.is_whole("这")) == (True, False)


def test_a_picture_says_that_characters_are_missing(ascii_only):
    boxes, _ = picture._layout([explained(TEXTS["chinese"])], font.spelled)
    assert "⟨U+8FD9⟩⟨U+90E8⟩" in "".join(box.text for box in boxes)
    assert any("font" in box.text for box in boxes)
    assert picture.drawn([explained(TEXTS["chinese"])]).height > picture.drawn([explained("a film")]).height
    plain, _ = picture._layout([explained("a film")], font.spelled)
    assert not any("font" in box.text for box in plain)


def test_an_svg_keeps_the_characters_for_the_fonts_of_its_reader(ascii_only):
    assert "这部电影" in picture.svg([explained(TEXTS["chinese"])])


def test_right_to_left_needs_shaping(monkeypatch):
    assert picture.drawn([explained(TEXTS["arabic"])]).width > 0
    monkeypatch.setattr(font.features, "check", lambda name: False)
    for text in (TEXTS["arabic"], "he said שלוש מילים today"):
        with pytest.raises(BadOption, match=r"right to left.*\.html"):
            picture.drawn([explained(text)])


def test_coloured_bitmaps_are_scaled_to_the_text():
    """Stands for an emoji font, which machines may lack: any font, drawn at another size and scaled."""
    large = font.Face(font.ImageFont.load_default(109), 38 / 109, colored=True)
    image = Image.new("RGB", (200, 80), "red")
    font._paste(image, (10, 60), "M", large)
    rows = np.flatnonzero((np.asarray(image) != (255, 0, 0)).any((1, 2)))
    assert 20 < rows.max() - rows.min() < 40 and rows.max() <= 61
    assert large.length("M") == pytest.approx(font.Face(font.ImageFont.load_default(38)).length("M"), rel=0.1)


# --- terminal, Markdown, records -------------------------------------------------------------------------------


def test_terminal_keeps_the_text_and_colours_by_sign():
    plain = terminal.render(review(), color=False)
    assert "\x1b" not in plain
    assert "A joyless ,  tedious film that Never finds its heart" in plain
    assert "negative  98.2 %" in plain
    colored = terminal.render(review(), color=True)
    red, green, blue = color.background(9, color.LIGHT)
    assert f"48;2;{red};{green};{blue}mtedious" in colored


def test_terminal_never_prints_what_a_text_commands():
    for one in (explained(HOSTILE), review(label="\x1b[2J[bold]x[/bold]", model="\x1b]0;owned\x07")):
        assert "\x1b" not in terminal.render(one)
        assert "\u202e" not in terminal.render(one)
    assert "[bold]x[/bold]" in terminal.render(review(label="[bold]x[/bold]"))


def test_terminal_shows_patches_and_methods():
    assert "██" in terminal.render(pictured())
    stacked = terminal.captured(terminal.methods({"att-cat": review(), "b:layer=3": review()}))
    assert stacked.count("tedious film") == 2
    assert "b:layer=3" in stacked


def test_markdown_escapes_and_ranks():
    text = markdown.document([explained("a <b> | tedious *film* `x`")])
    assert "\\<b\\> \\|" in text
    assert "| tedious | +0.61 | 1 |" in text
    assert "\\- no list" in markdown.escape("- no list")
    assert "**tedious**" in text and "**bold** speaks for negative" in text
    assert "*tedious*" in markdown.section(review(relevance=-review().relevance))
    assert "| patch | relevance" in markdown.section(pictured())


def test_axes_have_round_numbers():
    flat = curves.chart([curves.Curve("x", (0.0, 1.0), (-0.93, 0.95))], title="x")
    assert [f">{mark}</text>" in flat for mark in ("-1", "-0.5", "0", "0.5", "1")] == [True] * 5
    large = curves.chart([curves.Curve("x", (0.0, 1.0), (0.0, 1234.0))], title="x")
    assert ">1.25e+03</text>" in large


def test_record_is_plain_and_whole():
    import json

    plain = json.loads(line(review(diagnostics={"gap": float("nan"), "samples": np.int64(3)}), "att-cat:hidden=output"))
    assert plain["diagnostics"] == {"gap": None, "samples": 3}
    assert plain["name"] == "att-cat:hidden=output"
    assert len(plain["tokens"]) == 14
    assert plain["tokens"][1] == {
        "token": "a",
        "relevance": pytest.approx(-0.1),
        "special": False,
        "segment": 0,
        "start": 0,
        "end": 1,
    }
    assert [word["word"] for word in plain["words"]][:3] == ["A", "joyless", ","]
    assert record(pictured())["grid"] == [4, 4]


@pytest.mark.parametrize(
    ("label", "said"),
    [("cat", False), ("cat rather than cattle", False), ("cattle", True), ("cattle rather than cat", True)],
)
def test_another_class_than_the_predicted_one_is_told(label, said):
    one = review(label=label, diagnostics={"predicted": "cat", "predicted_probability": 0.9})
    assert ("the model predicts cat, 90.0 %" in wording.diagnostics_caption(one)) is said


@pytest.mark.parametrize(
    "options",
    [
        *({"top": value} for value in (200, -5, float("nan"), "a", True)),
        *({"opacity": value} for value in (2, -1, float("nan"), "x", None)),
        *({"full": value} for value in (-1, float("nan"), float("inf"), "x")),
    ],
    ids=str,
)
def test_an_overlay_takes_numbers_that_make_sense(options):
    with pytest.raises(BadOption, match=f"{next(iter(options))}=.*must be a finite number"):
        heatmap.overlay(pictured(), **options)


MASK = np.zeros((4, 4))


@pytest.mark.parametrize(
    ("view", "says"),
    [
        (lambda: html.classes([]), "nothing to show"),
        (lambda: html.classes(review()), "list of explanations"),
        (lambda: html.methods({}), "nothing to show"),
        (lambda: html.methods({"att-cat": [review()]}), "list of explanations"),
        (lambda: html.methods([review()]), "by the name of their method"),
        (lambda: gold.text_with_rationale([], []), "nothing to show"),
        (lambda: gold.text_with_rationale(review(), []), "list of explanations"),
        (lambda: gold.image_with_mask([], MASK), "nothing to show"),
        (lambda: picture.drawn([]), "nothing to show"),
        (lambda: picture.drawn(review()), "list of explanations"),
        (lambda: picture.svg([]), "nothing to show"),
        (lambda: corpus.top_words(review()), "list of explanations"),
        (lambda: corpus.top_words([]), "nothing to show"),
        (lambda: corpus.top_words(iter([review()])), "list of explanations"),
        (lambda: gold.spans_of("a film", "film"), "list of phrases"),
        (lambda: gold.spans_of("a film", [""]), "list of phrases"),
        (lambda: gold.spans_of("a film", [5]), "list of phrases"),
    ],
)
def test_views_say_what_they_cannot_show(view, says):
    with pytest.raises(BadInput, match=says):
        view()


def test_a_count_of_words_is_a_whole_number():
    with pytest.raises(BadOption, match="count=-1"):
        corpus.top_words([review()], count=-1)

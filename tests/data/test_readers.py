"""Readers: good files, files with bad rows, and files that are no use."""

import gzip
import io
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.tiny_models import SHARED
from PIL import Image, ImageOps

import clearhead
from clearhead.data.parquet import to_parquet
from clearhead.data.read import read_task
from clearhead.data.task import Example, Mask, Picture, Task, task_digest
from clearhead.errors import BadFile, BadInput, BadOption, UnknownName


def written(folder, name, content):
    path = folder / name
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def rows(task):
    return [(example.input, example.label) for example in task.examples]


def picture_bytes(size=(8, 6), value=7, image_format="PNG"):
    buffer = io.BytesIO()
    Image.new("RGB" if image_format == "JPEG" else "L", size, value).save(buffer, image_format)
    return buffer.getvalue()


@pytest.mark.parametrize("header", ["label\tsentence", "label\tcontent", "Label\tText"])
def test_glue_files(tmp_path, header):
    path = written(tmp_path, "dev.tsv", f'{header}\n0\ta "dull film\n1\ta fine film\n')
    task = read_task(path)
    assert rows(task) == [('a "dull film', 0), ("a fine film", 1)]
    assert (task.name, task.labels, task.skipped, task.notice) == ("dev.tsv", None, (), "")
    assert task.examples[0].id == "2"


def test_bad_rows_are_counted_with_their_lines(tmp_path):
    bad = [b"1", b"1\t ", b"", b"\xff\xfe\tx", b"1\tbroken \xff", b"\tno label", b"-1\tnone", b"1\tgood\textra"]
    content = b"\n".join([b"label\tsentence", b"0\tfine", *bad, b"1\tgood"])
    task = read_task(written(tmp_path, "dev.tsv", content))
    assert rows(task) == [("fine", 0), ("good", 1)]
    assert [row.line for row in task.skipped] == [3, 4, 6, 7, 8, 9, 10]
    assert [row.reason for row in task.skipped][:2] == ["1 columns instead of 2", "no text in column 'sentence'"]
    assert task.notice.startswith("7 rows were skipped in 'dev.tsv' (line 3: 1 columns instead of 2; line 4:")


def test_no_good_row_is_an_error(tmp_path):
    with pytest.raises(BadFile, match=r"no usable rows\. Line 2: no text"):
        read_task(written(tmp_path, "dev.tsv", "label\tsentence\n0\t \n"))
    with pytest.raises(BadFile, match="nothing to read"):
        read_task(written(tmp_path, "empty.tsv", ""))
    with pytest.raises(BadFile, match="no usable rows"):
        read_task(written(tmp_path, "empty.txt", "\n \n"))


def test_texts_and_topics_without_a_header(tmp_path):
    path = written(tmp_path, "news.tsv", "Shares fell\tBusiness\nA goal\tSports\nShares rose\tBusiness\n")
    task = read_task(path)
    assert rows(task)[0] == ("Shares fell", "Business")
    assert task.labels == ("Business", "Sports")
    assert rows(read_task(path, text_column="2", label_column="1"))[0] == ("Business", "Shares fell")


def test_pairs(tmp_path):
    lines = "neutral\tA man\tA tall man\nentailment\tA dog runs\tIt moves\nneutral\tx y\tz\n"
    expected = [(("A man", "A tall man"), "neutral"), (("A dog runs", "It moves"), "entailment")]
    assert rows(read_task(written(tmp_path, "snli.txt", lines)))[:2] == expected
    assert rows(read_task(written(tmp_path, "snli.tsv", lines)))[:2] == expected
    glue = written(tmp_path, "mnli.tsv", "index\tsentence1\tsentence2\tgold_label\n5\tA man\tA tall man\tneutral\n")
    assert read_task(glue).examples == [Example("5", ("A man", "A tall man"), "neutral")]
    quora = written(tmp_path, "qqp.csv", 'id,question1,question2,is_duplicate\n9,"a, b?",c?,1\n')
    assert read_task(quora).examples == [Example("9", ("a, b?", "c?"), 1)]


def test_named_columns(tmp_path):
    path = written(tmp_path, "x.csv", 'stars,words\n5,"fine, film"\n1,dull\n')
    assert rows(read_task(path, text_column="words", label_column="stars")) == [("fine, film", 5), ("dull", 1)]
    with pytest.raises(BadInput, match="text_column: stars, words"):
        read_task(path)
    with pytest.raises(UnknownName, match="Did you mean 'words'"):
        read_task(path, text_column="word")
    with pytest.raises(UnknownName, match="column"):
        read_task(path, text_column="words", label_column="labels")


def test_a_broken_quotation_spoils_its_row_alone(tmp_path):
    task = read_task(written(tmp_path, "x.csv", 'label,text\n1,"fine" film\n0,"dull\nfilm"\n1,good\n'))
    assert rows(task) == [("dull\nfilm", 0), ("good", 1)]
    assert task.skipped[0].line == 2 and "not a proper row" in task.skipped[0].reason


def test_other_separators_than_commas_are_told(tmp_path):
    with pytest.raises(BadFile, match=r"semicolons, not commas: its first row is 'label;text'.*\.tsv"):
        read_task(written(tmp_path, "x.csv", "label;text\n1;fine, film\n"))
    with pytest.raises(BadFile, match="tabs, not commas"):
        read_task(written(tmp_path, "x.csv", "label\ttext\n1\tfine, film\n"))
    assert rows(read_task(written(tmp_path, "x.csv", "text\na; b\n"))) == [("a; b", None)]


def test_carriage_returns_alone_end_lines(tmp_path):
    assert rows(read_task(written(tmp_path, "x.csv", "label,text\r1,fine\r0,dull\r"))) == [("fine", 1), ("dull", 0)]


def test_json_lines_plain_and_gzipped(tmp_path):
    lines = '{"id": "a", "text": "fine", "label": 1}\n{"text": \n[1]\n{"id": "a", "text": "dull", "label": "bad"}\n'
    for name in ("x.jsonl", "x.jsonl.gz"):
        task = read_task(written(tmp_path, name, lines))
        assert rows(task) == [("fine", 1), ("dull", "bad")]
        assert [row.line for row in task.skipped] == [2, 3]
        assert [example.id for example in task.examples] == ["a", "a#4"]


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    path = written(tmp_path, "x.parquet", to_parquet([{"review": "fine", "label": 1}, {"review": None, "label": 0}]))
    task = read_task(path)
    assert rows(task) == [("fine", 1)] and task.skipped[0].line == 2
    images = written(tmp_path, "y.parquet", to_parquet([{"image": picture_bytes(), "label": 3}]))
    assert read_task(images).examples[0].raw.size == (8, 6)
    with pytest.raises(BadFile, match="Parquet"):
        read_task(written(tmp_path, "z.parquet", "no table"))


@pytest.mark.parametrize("ending", ["arrow", "feather", "ipc"])
def test_arrow(tmp_path, ending):
    feather = pytest.importorskip("pyarrow.feather")
    arrow = pytest.importorskip("pyarrow")
    path = tmp_path / f"x.{ending}"
    feather.write_feather(arrow.table({"review": ["fine", None, "dull"], "label": [1, 0, 0]}), path)
    task = read_task(path)
    assert rows(task) == [("fine", 1), ("dull", 0)] and task.skipped[0].line == 2
    path.write_text("no table")
    with pytest.raises(BadFile, match="Arrow"):
        read_task(path)


def test_one_text_per_line(tmp_path):
    task = read_task(written(tmp_path, "x.txt", "\ufefffirst\r\n\nsecond\n"))
    assert rows(task) == [("first", None), ("second", None)]
    assert [row.line for row in task.skipped] == [2]


def test_a_limit_draws_from_the_whole_file(tmp_path):
    lines = "".join(f"{index // 50}\ttext {index}\n" for index in range(100))
    path = written(tmp_path, "x.tsv", "label\ttext\n" + lines)
    first, again = read_task(path, limit=20), read_task(path, limit=20)
    assert len(first) == 20 and rows(first) == rows(again)
    assert {example.label for example in first.examples} == {0, 1}
    assert rows(first) == sorted(rows(first), key=lambda row: int(row[0].split()[1]))
    for limit in (0, 1.5, "3"):
        with pytest.raises(BadOption, match="limit="):
            read_task(path, limit=limit)


def test_eraser_movies(tmp_path):
    text = "a dull film with no plot"
    good = {"docid": "neg_1", "label": 0, "text": text, "rationale_char_spans": [[2, 6], [12, 24]]}
    bad = [{**good, "rationale_char_spans": [[2, 99]]}, {**good, "text": ""}, {**good, "rationale_char_spans": 3}]
    lines = "\n".join(json.dumps(row) for row in [good, *bad])
    task = read_task(written(tmp_path, "docs.jsonl.gz", lines))
    assert task.examples == [Example("neg_1", text, 0, ((0, 2, 6), (0, 12, 24)))]
    assert [row.line for row in task.skipped] == [2, 3, 4]


def squad(*questions, context="The plot is fine ."):
    return json.dumps({"data": [{"paragraphs": [{"context": context, "qas": list(questions)}]}]})


def test_squad_of_both_versions(tmp_path):
    asked = {"id": "1", "question": "What is fine ?", "answers": [{"text": "plot", "answer_start": 4}] * 2}
    none = {"id": "2", "question": "Who ?", "answers": [], "is_impossible": True}
    wrong = {"id": "3", "question": "What ?", "answers": [{"text": "plot", "answer_start": 5}]}
    blank = {"id": "4", "question": " ", "answers": []}
    task = read_task(written(tmp_path, "dev.json", squad(asked, none, wrong, blank)))
    assert task.examples == [
        Example("1", ("What is fine ?", "The plot is fine ."), None, ((1, 4, 8),)),
        Example("2", ("Who ?", "The plot is fine ."), None, ()),
    ]
    assert [row.line for row in task.skipped] == [3, 4]
    assert "'plot' is not at character 5" in task.skipped[0].reason
    with pytest.raises(BadFile, match="not JSON"):
        read_task(written(tmp_path, "broken.json", "{"))
    with pytest.raises(BadFile, match="SQuAD"):
        read_task(written(tmp_path, "other.json", "[]"))


@pytest.mark.parametrize(
    "damaged", [5, {"paragraphs": 5}, {"paragraphs": [5]}, {"paragraphs": [{"context": "The plot .", "qas": 5}]}]
)
def test_damage_inside_squad_is_counted(tmp_path, damaged):
    asked = {"id": "1", "question": "What ?", "answers": [{"text": "plot", "answer_start": 4}]}
    body = json.loads(squad(asked))
    task = read_task(written(tmp_path, "dev.json", json.dumps({"data": [damaged, *body["data"]]})))
    assert [example.id for example in task.examples] == ["1"] and [row.line for row in task.skipped] == [1]
    with pytest.raises(BadFile, match="no usable rows"):
        read_task(written(tmp_path, "dev.json", json.dumps({"data": [damaged]})))


def test_a_folder_of_classes(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        written(tmp_path / name, "1.png", picture_bytes())
    written(tmp_path / "dog", "2.jpg", "not a picture")
    task = read_task(tmp_path)
    assert [(example.id, example.label) for example in task.examples] == [("cat/1.png", "cat"), ("dog/1.png", "dog")]
    assert task.skipped[0].line == 3 and "'2.jpg' cannot be read as an image" in task.skipped[0].reason
    assert task.labels == ("cat", "dog")


def test_folders_without_pictures(tmp_path):
    with pytest.raises(BadFile, match="holds no images"):
        read_task(tmp_path)
    written(tmp_path, "1.png", "no")
    with pytest.raises(BadFile, match=r"no usable rows\. Line 1: '1\.png'"):
        read_task(tmp_path)


def test_pictures_with_masks(tmp_path):
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    for name in ("a", "b", "c"):
        written(tmp_path / "images", f"{name}.jpg", picture_bytes(image_format="JPEG"))
    written(tmp_path / "masks", "a.png", picture_bytes(value=255))
    written(tmp_path / "masks", "b.png", picture_bytes(size=(4, 4)))
    task = read_task(tmp_path)
    assert [example.id for example in task.examples] == ["a.jpg"]
    assert task.examples[0].gold.array().tolist() == np.ones((6, 8)).tolist()
    assert [row.reason for row in task.skipped] == ["'b.jpg' is 8×6, its mask 4×4", "'c.jpg' has no mask"]


@pytest.mark.parametrize("note", [1, 3, 6, 8])
@pytest.mark.parametrize("drawn", ["on the stored pixels", "on the upright picture", "with a note of its own"])
def test_a_mask_lies_on_its_upright_picture(tmp_path, note, drawn):
    exif, there = Image.Exif(), np.zeros((6, 8), dtype=np.uint8)
    exif[274], there[0, :3] = note, 255
    stored = Image.fromarray(there)
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    stored.save(tmp_path / "images" / "a.png", exif=exif)
    upright = ImageOps.exif_transpose(Image.open(tmp_path / "images" / "a.png"))
    if drawn == "on the upright picture" and upright.size == stored.size:
        return
    mask = upright if drawn == "on the upright picture" else stored
    mask.save(tmp_path / "masks" / "a.png", exif=exif if drawn == "with a note of its own" else Image.Exif())
    (example,) = read_task(tmp_path).examples
    seen = np.asarray(Picture(example.raw.read_bytes()).opened())
    np.testing.assert_array_equal(example.gold.array(), seen == 255)


def test_oxford_pets(tmp_path):
    pytest.importorskip("pyarrow")
    trimap = io.BytesIO()
    Image.fromarray(np.array([[1, 2], [3, 1]], dtype=np.uint8)).save(trimap, "PNG")
    row = {"name": "Beagle_1", "breed": "Beagle", "breed_id": 1, "species": "dog"}
    row |= {"image": picture_bytes((2, 2)), "trimap": trimap.getvalue()}
    second = {**row, "name": "Abyssinian_1", "breed": "Abyssinian", "breed_id": 0, "species": "cat"}
    path = written(tmp_path, "pets.parquet", to_parquet([row, second, {**row, "image": b""}]))
    task = read_task(path)
    assert [(example.id, example.label) for example in task.examples] == [("Beagle_1", 1), ("Abyssinian_1", 0)]
    assert task.labels == ("Abyssinian", "Beagle")
    assert task.examples[0].gold.array().tolist() == [[1, 0], [-1, 1]]
    assert task.examples[0].raw.size == (2, 2)
    assert task.skipped[0].line == 3
    assert read_task(path, label_column="species").labels == ("cat", "dog")


def test_a_damaged_stored_picture():
    with pytest.raises(BadInput, match="cannot be read as an image"):
        _ = Example("1", Picture(b"no")).raw
    with pytest.raises(BadInput, match="cannot be read"):
        Mask(SHARED / "no such mask.png").array()


class Rows(list):
    @property
    def features(self):
        return {"sentence": None, "label": SimpleNamespace(names=["negative", "positive"])}


def test_hugging_face_data_sets(monkeypatch):
    asked = []

    def load_dataset(*arguments, **options):
        asked.append((arguments, options))
        return Rows([{"sentence": "fine", "label": 1}, {"sentence": "hidden", "label": -1}])

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    task = read_task("hf:glue", config="sst2", split="validation")
    assert asked == [(("glue", "sst2"), {"split": "validation"})]
    assert rows(task) == [("fine", 1)] and task.labels == ("negative", "positive")
    assert task.skipped[0].line == 2


def test_saved_hugging_face_data_sets(monkeypatch, tmp_path):
    written(tmp_path, "dataset_dict.json", "{}")
    splits = {"train": Rows(), "test": Rows([{"sentence": "fine", "label": 0}])}
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_from_disk=lambda _: splits))
    assert rows(read_task(tmp_path)) == [("fine", 0)]
    with pytest.raises(BadOption, match="Available: train, test"):
        read_task(tmp_path, split="dev")


def test_configuration_and_split_in_the_name(monkeypatch, tmp_path):
    asked = []

    def load_dataset(*arguments, **options):
        asked.append((*arguments, options["split"]))
        return Rows([{"sentence": "fine", "label": 1}])

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    for name in ("hf:imdb", "hf:imdb@train", "hf:glue:sst2@validation", f"hf:{tmp_path}@dev", f"hf:{tmp_path}"):
        read_task(name)
    assert asked == [
        ("imdb", None, "test"),
        ("imdb", None, "train"),
        ("glue", "sst2", "validation"),
        (str(tmp_path), None, "dev"),
        (str(tmp_path), None, "test"),
    ]


def test_the_real_library_reads_what_it_saved(monkeypatch, tmp_path):
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    labels = datasets.ClassLabel(names=["negative", "positive"])
    features = datasets.Features({"sentence": datasets.Value("string"), "label": labels})
    columns = {"sentence": ["a good film", "a bad film", " "], "label": [1, 0, 1]}
    texts = datasets.Dataset.from_dict(columns, features=features)
    texts.save_to_disk(tmp_path / "texts")
    datasets.DatasetDict({"train": texts, "test": texts.select([1])}).save_to_disk(tmp_path / "splits")
    task = read_task(tmp_path / "texts")
    assert rows(task) == [("a good film", 1), ("a bad film", 0)] and task.labels == ("negative", "positive")
    assert task.skipped[0].line == 3
    assert rows(read_task(tmp_path / "splits")) == [("a bad film", 0)]
    assert len(read_task(f"hf:{tmp_path / 'splits'}", split="train").examples) == 2
    with pytest.raises(BadOption, match="Available: train, test"):
        read_task(tmp_path / "splits", split="dev")


def test_the_real_library_reads_tables_and_pictures(monkeypatch, tmp_path):
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "csv").mkdir()
    written(tmp_path, "csv/test.csv", "text,label\na good film,pos\na bad one,neg\n")
    written(tmp_path, "csv/train.csv", "text,label\nfine,pos\n")
    assert rows(read_task(f"hf:{tmp_path / 'csv'}")) == [("a good film", "pos"), ("a bad one", "neg")]
    assert rows(read_task(f"hf:{tmp_path / 'csv'}@train")) == [("fine", "pos")]
    with pytest.raises(BadFile, match="Unknown split"):
        read_task(f"hf:{tmp_path / 'csv'}@dev")
    pictures = {"image": [Image.new("RGB", (8, 8), (shade, 0, 0)) for shade in (0, 90)], "label": [0, 1]}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    datasets.Dataset.from_dict(pictures, features=features).save_to_disk(tmp_path / "pictures")
    task = read_task(tmp_path / "pictures")
    assert [example.raw.size for example in task.examples] == [(8, 8)] * 2 and task.labels == ("cat", "dog")
    assert task_digest(task) == task_digest(read_task(tmp_path / "pictures"))


def test_hugging_face_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(BadOption, match="pip install datasets"):
        read_task("hf:imdb")


def test_readers_are_listed():
    listed = clearhead.tasks()
    assert {"tsv", "csv", "jsonl", "parquet", "txt", "pairs", "squad", "eraser-movies", "image-folder"} <= set(listed)
    assert all(reader.summary for reader in listed.values())


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(BadFile, match="no file or folder"):
        read_task(tmp_path / "missing.tsv")
    with pytest.raises(BadFile, match="Name a reader"):
        read_task(written(tmp_path, "x.xyz", "1"))
    with pytest.raises(BadFile, match="cannot be read"):
        read_task(_not_gzip(tmp_path))
    with pytest.raises(BadInput, match="int is not a task"):
        read_task(3)
    with pytest.raises(UnknownName, match="task reader"):
        read_task(written(tmp_path, "a.txt", "x"), reader="tvs")
    with pytest.raises(BadOption, match="text_column"):
        read_task(tmp_path / "a.txt", text_column="x")
    for source in ("", " ", "a\0.csv"):
        with pytest.raises(BadInput, match="names no task"):
            read_task(source)
    with pytest.raises(BadFile, match="no file or folder"):
        read_task(tmp_path / "missing", reader="image-folder")


@pytest.mark.parametrize(("name", "mark"), [("x.csv", ","), ("x.tsv", "\t")])
def test_two_columns_of_one_name_are_refused(tmp_path, name, mark):
    with pytest.raises(BadFile, match="2 columns called 'text'"):
        read_task(written(tmp_path, name, f"text{mark}text{mark}label\na{mark}b{mark}0\n"))
    assert rows(read_task(written(tmp_path, name, f"text{mark}{mark}\na{mark}{mark}\n"))) == [("a", None)]


def test_columns_are_named_or_numbered(tmp_path):
    path = written(tmp_path, "x.tsv", "0\tfine film\n1\tdull film\n")
    assert rows(read_task(path, text_column=2, label_column=1)) == [("fine film", 0), ("dull film", 1)]
    for option in ("text_column", "label_column"):
        for value in (["2"], 1.5, True):
            with pytest.raises(BadOption, match=option):
                read_task(path, **{option: value})


def _not_gzip(folder):
    path = folder / "plain.tsv.gz"
    path.write_text("label\ttext\n")
    return path


def test_a_reader_can_be_named(tmp_path):
    path = written(tmp_path, "x.dat", "0\tfine film\n1\tdull film\n")
    assert rows(read_task(path, reader="tsv")) == [("fine film", 0), ("dull film", 1)]
    task = read_task(path, reader="tsv")
    assert read_task(task) is task


def test_the_fingerprint_of_a_task_follows_its_content(tmp_path):
    def fingerprint(*examples):
        return task_digest(Task("t", examples))

    first = fingerprint(Example("1", "a", 0))
    assert first == fingerprint(Example("1", "a", 0))
    changed = [Example("1", "b", 0), Example("1", "a", 1), Example("2", "a", 0), Example("1", "a", 0, ((0, 0, 1),))]
    assert len({first, *(fingerprint(example) for example in changed)}) == 5
    path = written(tmp_path, "x.png", picture_bytes())
    assert fingerprint(Example("1", path)) == fingerprint(Example("1", Picture(picture_bytes())))


DATA = SHARED / "data"


@pytest.mark.skipif(not DATA.exists(), reason="the data sets are not on this machine")
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("sst2/dev.tsv", 872),
        ("ag_news/test.tsv", 7600),
        ("pairs/mnli_matched.txt", 1000),
        ("squad/xquad.en.json", 1190),
        ("eraser_movies/docs_val.jsonl.gz", 200),
        ("imdb/test_1000.jsonl.gz", 1000),
        ("oxford_pets/test.parquet", 3669),
    ],
)
def test_the_papers_data(name, count):
    task = read_task(DATA / name)
    assert len(task) + len(task.skipped) == count
    assert len(task.skipped) <= 0.01 * count
    assert len({example.id for example in task.examples}) == len(task)
    assert name.startswith("squad") or all(example.label is not None for example in task.examples)

"""Readers of prompts, minimal pairs, passages and translations: good files, bad rows, and files that are no use."""

import json

import pytest
from helpers.tiny_models import SHARED

import clearhead
from clearhead.data.read import read_task
from clearhead.data.task import Example, Task, Writing, task_digest
from clearhead.errors import BadFile

GENERATION = SHARED / "data" / "generation"
needs_shared = pytest.mark.skipif(not GENERATION.is_dir(), reason="the shared data sets are not there")


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_prompts_with_all_columns(tmp_path):
    row = {
        "id": "a",
        "prompt": "Whose capital is on the Seine, and on no other river?",
        "answer": "France",
        "foil": "Spain",
        "evidence": ["Seine", [0, 5]],
        "sources": ["Paris is on the Seine.", "Whose capital"],
    }
    task = read_task(write_lines(tmp_path / "prompts.jsonl", [row]))
    (example,) = task.examples
    assert example.id == "a"
    # A source that is not in the prompt comes before it, one that is stays where it is.
    assert example.input == f"Paris is on the Seine.\n\n{row['prompt']}"
    assert example.writing == Writing("France", "Spain", ("Paris is on the Seine.", "Whose capital"))
    marked = [example.input[start:end] for _, start, end in example.gold]
    assert marked == ["Seine", "Seine", "Paris"]


def test_all_but_the_prompt_is_optional(tmp_path):
    task = read_task(write_lines(tmp_path / "prompts.jsonl", [{"prompt": "Hello"}, {"prompt": "Hello"}]))
    assert [example.id for example in task.examples] == ["1", "2"]
    assert task.examples[0] == Example("1", "Hello", writing=Writing())


def test_equal_ids_are_told_apart(tmp_path):
    rows = [{"id": "x", "prompt": "a"}, {"id": "x", "prompt": "b"}]
    task = read_task(write_lines(tmp_path / "prompts.jsonl", rows))
    assert len({example.id for example in task.examples}) == 2


def test_a_chat_is_a_prompt_and_evidence_is_found_in_its_messages(tmp_path):
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Be kind, be brief."}]
    task = read_task(write_lines(tmp_path / "chats.jsonl", [{"prompt": chat, "evidence": "brief"}]))
    assert task.examples[0].input == chat
    assert task.examples[0].gold == ((0, 3, 8), (1, 12, 17))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": " "}, "'prompt'"),
        ({"prompt": 3}, "'prompt'"),
        ({"prompt": [{"content": "no role"}]}, "'prompt'"),
        ({"prompt": "a", "answer": ""}, "'answer'"),
        ({"prompt": "a", "foil": 3}, "'foil'"),
        ({"prompt": "a", "sources": "b"}, "'sources'"),
        ({"prompt": "a", "evidence": "b"}, "does not occur"),
        ({"prompt": "a", "evidence": [[0, 2]]}, "outside"),
        ({"prompt": "a", "evidence": [[0]]}, "neither"),
        ({"prompt": "a", "evidence": 3}, "neither"),
        ({"prompt": [{"role": "user", "content": "a"}] * 2, "evidence": [[0, 1]]}, "as texts"),
    ],
)
def test_a_bad_row_is_skipped_with_its_line_and_reason(tmp_path, row, reason):
    path = write_lines(tmp_path / "prompts.jsonl", [{"prompt": "good"}, row])
    task = read_task(path)
    assert [example.input for example in task.examples] == ["good"]
    assert "line 2" in task.notice and reason in task.notice


def test_tables_without_prompts_are_read_as_before(tmp_path):
    path = write_lines(tmp_path / "texts.jsonl", [{"text": "a fine film", "label": 1}])
    assert read_task(path).examples == [Example("1", "a fine film", 1)]


def test_the_digest_changes_with_answer_and_foil():
    tasks = [Task("t", [Example("1", "a", writing=writing)]) for writing in (None, Writing("b"), Writing("b", "c"))]
    assert len(set(map(task_digest, tasks))) == 3


HEADER = "one_prefix_prefix,one_prefix_word_good,one_prefix_word_bad,target\n"


def test_minimal_pairs_of_a_file_and_of_a_folder(tmp_path):
    (tmp_path / "first.csv").write_text(HEADER + "Some cats,are,is,cats\nNo row,a,b,NA\n")
    (tmp_path / "second.csv").write_text(HEADER + "Ann saw these,children,child,these\n")
    task = read_task(tmp_path / "first.csv")
    assert task.examples == [Example("first-2", "Some cats", gold=((0, 5, 9),), writing=Writing("are", "is"))]
    assert "'NA' does not occur" in task.notice
    assert [example.id for example in read_task(tmp_path).examples] == ["first-2", "second-2"]


def test_lambada_passages_end_before_their_last_word(tmp_path):
    row = {"lambadaIndex": 7, "text": "He took\nthe camera", "rationale": [[3, 7]]}
    task = read_task(write_lines(tmp_path / "lambada.json", [row, {**row, "text": "word"}]))
    assert task.examples == [Example("7", "He took\nthe", gold=((0, 3, 7),), writing=Writing("camera"))]
    assert "two words" in task.notice


def write_translations(folder, sentences, links):
    (folder / "pairs.src-tgt").write_text(sentences)
    (folder / "pairs.gold").write_text(links)
    return folder / "pairs.src-tgt"


def test_translations_with_sure_and_possible_links(tmp_path):
    task = read_task(write_translations(tmp_path, "猫 睡 了 ||| the cat slept\n", "1-2 2-3 3p3\n"))
    alignment = task.examples[0].writing.alignment
    assert (task.examples[0].input, task.examples[0].writing.answer) == ("猫 睡 了", "the cat slept")
    assert alignment.sure == {(0, 1), (1, 2)}
    assert alignment.possible == {(0, 1), (1, 2), (2, 2)}


@pytest.mark.parametrize(
    ("sentence", "link", "reason"),
    [
        ("a b c", "1-1", "source ||| translation"),
        ("a ||| b", "1:1", "3-4 or 3p4"),
        ("a ||| b", "2-1", "outside"),
        ("a ||| b", "0-1", "outside"),
        ("a ||| b", "", "no sure link"),
    ],
)
def test_a_bad_translation_is_skipped(tmp_path, sentence, link, reason):
    task = read_task(write_translations(tmp_path, f"a ||| b\n{sentence}\n", f"1-1\n{link}\n"))
    assert len(task) == 1
    assert reason in task.notice


def test_translations_need_their_links(tmp_path):
    path = write_translations(tmp_path, "a ||| b\n", "1-1\n")
    path.with_suffix(".gold").unlink()
    with pytest.raises(BadFile, match="alignments"):
        read_task(path)


def test_readers_are_listed():
    assert {"prompts", "minimal-pairs", "lambada", "translations"} <= set(clearhead.tasks())


@needs_shared
@pytest.mark.parametrize(
    ("name", "rows", "skipped"),
    [("blimp", 5931, 69), ("annotated_lambada.json", 107, 0), ("zhen.src-tgt", 450, 0)],
)
def test_the_real_data_sets(name, rows, skipped):
    task = read_task(GENERATION / name)
    assert (len(task), len(task.skipped)) == (rows, skipped)
    assert len({example.id for example in task.examples}) == rows
    assert all(example.writing.answer for example in task.examples)

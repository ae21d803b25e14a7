"""Mistakes that people make, each of which is one line and exit code 2, before anything is computed."""

import pytest
from helpers.commands import TEXT, assert_one_line

FILES = {
    "ok.csv": b"text,label\na good film,1\na bad film,0\n",
    "semicolons.csv": b"text;label\na good film;1\n",
    "latin.csv": b"text,label\ncaf\xe9 film,1\n",
    "latin.txt": b"caf\xe9",
    "utf16.csv": "text,label\nx,1\n".encode("utf-16"),
    "columns.csv": b"foo,bar\na good film,1\n",
    "empty.csv": b"",
    "header.csv": b"text,label\n",
    "twice.csv": b"text,text\na,b\n",
    "table.xlsx": b"PK\x03\x04",
    "letter.docx": b"PK\x03\x04",
    "data.json": b"{}",
    "bad.jsonl": b"{",
    "bad.parquet": b"PAR1",
    "bad.png": b"\x89PNG",
    "blank.txt": b" \n",
}

# The command, with the names of files above, and what its message must contain. MODEL is a model's folder.
MISTAKES = {
    "missing spreadsheet": ("explain news.xlsx -m MODEL", "There is no file 'news.xlsx'"),
    "missing document": ("explain review.docx -m MODEL", "add --as-text"),
    "missing prompt": ("ask prompt.txt -m MODEL", "If it is a text, pipe it into clearhead ask -."),
    "missing photo": ("explain photo.jpg -m MODEL", "There is no file 'photo.jpg'"),
    "missing path": ("explain data/missing_file -m MODEL", "There is no file 'data/missing_file'"),
    "missing table into a table": ("explain missing.csv -m MODEL --out new.csv", "There is no file 'missing.csv'"),
    "missing table of shards": ("explain missing.csv -m MODEL --shard 9", "There is no file 'missing.csv'"),
    "missing table": ("compare missing.csv -m MODEL", "There is no file 'missing.csv'"),
    "spreadsheet": ("explain table.xlsx -m MODEL", "an Excel file: save it as .csv"),
    "document": ("explain letter.docx -m MODEL", "a Word document: save it as .txt"),
    "JSON": ("explain data.json -m MODEL", "one object per line, as .jsonl"),
    "semicolons": ("explain semicolons.csv -m MODEL", "Use --delimiter ';'"),
    "semicolons in a bench": ("bench --task semicolons.csv -m MODEL --out run", "Use --delimiter ';'"),
    "Latin-1 table": ("explain latin.csv -m MODEL", "--encoding latin-1"),
    "Latin-1 text": ("explain latin.txt -m MODEL", "--encoding latin-1"),
    "UTF-16": ("explain utf16.csv -m MODEL", "--encoding utf-16"),
    "long delimiter": ("explain ok.csv --delimiter ;; -m MODEL", "one character"),
    "no encoding": ("explain ok.csv --encoding klingon -m MODEL", "Unknown --encoding 'klingon'"),
    "no text encoding": ("explain ok.csv --encoding base64 -m MODEL", "Unknown --encoding 'base64'"),
    "no text column": ("explain columns.csv -m nowhere/model", "--text-column: foo, bar"),
    "wrong column": ("explain ok.csv --text-column txt -m nowhere/model", "Did you mean 'text'?"),
    "wrong column, compared": ("compare ok.csv --text-column txt -m nowhere/model", "Did you mean 'text'?"),
    "empty table": ("explain empty.csv -m MODEL", "has no rows"),
    "header only": ("explain header.csv -m MODEL", "has no rows"),
    "columns of one name": ("explain twice.csv -m MODEL", "2 columns called 'text'"),
    "damaged line": ("explain bad.jsonl -m MODEL", "not JSON"),
    "damaged Parquet": ("explain bad.parquet -m MODEL", "bad.parquet"),
    "image for a text model": ("explain bad.png -m MODEL", "the model reads text"),
    "blank text": ("explain blank.txt -m MODEL", "empty"),
    "no text": ("explain '' -m MODEL", "empty"),
    "two models, explained": ("explain TEXT --model MODEL --model MODEL", "given 2 times"),
    "shap": ("explain TEXT --method shap -m MODEL", "shapley-sampling"),
    "captum": ("explain TEXT --method captum -m MODEL", "integrated-gradients"),
    "grad-cam": ("explain TEXT --method grad-cam -m MODEL", "layer-gradcam"),
    "no head": ("explain TEXT --method decoded-gradcam -m MODEL", "--lm-head"),
    "no model": ("explain TEXT -m ./nowhere", "There is no such folder"),
    "model file": ("explain TEXT -m ok.csv", "cannot be loaded"),
    "bench without data": ("bench --out run -m MODEL", "--task"),
    "bench of a missing file": ("bench --task no.tsv --out run -m MODEL", "There is no file or folder 'no.tsv'"),
    "unknown metric": ("bench --task ok.csv --metrics aopcc --out run -m MODEL", "Did you mean 'aopc'?"),
    "unknown method in a bench": ("bench --task ok.csv --methods lim --out run -m MODEL", "Did you mean 'lime'?"),
    "unknown table of a paper": ("bench attcat-table9 --task ok.csv --out run", "attcat-table"),
    "batches of words": ("bench --task ok.csv --batch-size many --out run -m MODEL", "auto or a positive integer"),
    "answer of a classifier": ("explain TEXT --answer yes -m MODEL", "no language model"),
    "pair of one": ("explain TEXT --pair -m MODEL", "exactly two texts"),
    "check of two": ("explain TEXT --check 2 -m MODEL", "--check 2"),
    "check and no check": ("explain TEXT --check 5 --no-check -m MODEL", "contradict"),
    "target and itself": ("explain TEXT --target positive --versus positive -m MODEL", "contrasted with itself"),
    "column without a table": ("explain TEXT --target column:label -m MODEL", "table"),
    "into a missing folder": ("explain TEXT --out no/x.html -m MODEL", "no folder 'no'"),
    "report of nothing": ("report nowhere", "nowhere"),
    "words of a missing column": ("words ok.csv --text-column txt -m MODEL", "Did you mean 'text'?"),
    "plan of a missing file": ("plan missing.csv -m MODEL", "There is no file"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    # Flags about files are set in the environment, which must not reach other tests.
    for variable in ("CLEARHEAD_DELIMITER", "CLEARHEAD_ENCODING"):
        monkeypatch.setenv(variable, "")
    return tmp_path


@pytest.mark.parametrize(("command", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line(run, model, folder, command, message):
    import shlex

    words = {"MODEL": model, "TEXT": TEXT}
    arguments = [words.get(word, word) for word in shlex.split(command)]
    assert_one_line(*run(*arguments), message)


def test_files_of_other_formats_are_read_with_a_flag(run, model, folder):
    code, plain, _ = run("explain", "ok.csv", "-m", model, "--json", "--no-check")
    assert code == 0
    (folder / "other.csv").write_bytes("text;label\na good film;1\ncafé, très bon;0\n".encode("latin-1"))
    flags = ["--delimiter", ";", "--encoding", "latin-1"]
    code, output, _ = run("explain", "other.csv", "-m", model, "--json", "--no-check", *flags)
    assert code == 0
    assert "café, très bon" in output
    assert plain.splitlines()[0].replace("ok.csv", "other.csv") == output.splitlines()[0]


def test_a_name_can_be_a_text(run, model, folder):
    code, output, _ = run("explain", "news.xlsx", "--as-text", "-m", model, "--json", "--no-check")
    assert code == 0
    assert '"news.xlsx"' in output


@pytest.mark.parametrize("text", ["and/or", "N/A", "3.5", "he/she", "example.com", "https://a.b/c_d"])
def test_texts_that_look_a_little_like_files_are_texts(run, model, folder, text):
    code, _, _ = run("explain", text, "-m", model, "--json", "--no-check")
    assert code == 0


def test_compare_without_methods_compares_several(run, model):
    code, output, _ = run("compare", "a good film", "-m", model, "--json", "--no-check")
    assert code == 0
    assert len(output.splitlines()) == 4


def test_bench_without_names_says_what_it_measures(run, model, folder):
    code, output, errors = run("bench", "--task", "ok.csv", "-m", model, "--out", "run")
    assert code == 0
    assert "No methods named, so these are used: balanced-cat" in errors
    assert "No metrics named, so these are used: comprehensiveness" in errors
    assert "integrated-gradients" in output


def test_an_interrupted_bench_says_what_is_kept(run, model, folder, monkeypatch):
    from clearhead.bench import worker

    finished = []

    def run_job(own, job):
        if finished:
            raise KeyboardInterrupt
        finished.append(job)
        return original(own, job)

    original = worker.run_job
    monkeypatch.setattr(worker, "run_job", run_job)
    names = ["--methods", "gradient", "--metrics", "aopc", "--shard", "1"]
    code, _, errors = run("bench", "--task", "ok.csv", "-m", model, "--out", "run", *names)
    assert code == 130
    assert "Stopped: 1 of 2 examples are kept in run. The same command goes on from there." in errors

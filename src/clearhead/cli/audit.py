"""clearhead audit."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli import options, outputs
from clearhead.cli.snapshot import TASK_HELP, LabelColumn, Limit, choose_method

if TYPE_CHECKING:
    from clearhead.drift.shortcuts import Audit

AuditedModel = Annotated[
    str, typer.Argument(metavar="MODEL", show_default=False, help="Embedded model, folder or hub id.")
]
AuditedTask = Annotated[str, typer.Argument(metavar="TASK", show_default=False, help=TASK_HELP)]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Output file: .html, .md or .json.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Count = Annotated[int, typer.Option(min=0, metavar="N", help="Words to test, those with most relevance first.")]
Words = Annotated[
    list[str] | None, typer.Option("--word", metavar="WORD", help="Test this word in any case; repeatable.")
]


def audit(
    model: AuditedModel,
    task: AuditedTask,
    out: Out = None,
    json: Json = False,
    count: Count = 20,
    words: Words = None,
    method: options.Method = None,
    method_options: options.MethodOptions = None,
    text_column: options.TextColumn = None,
    label_column: LabelColumn = None,
    limit: Limit = None,
    batch_size: options.BatchSize = None,
    precision: options.Precision = None,
    device: options.Device = None,
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Find shortcuts: words that carry a class without being evidence, tested by hiding them over the data set.

    Example: clearhead audit my-model dev.tsv --out audit.html
    """
    outputs.check_path(out, endings=tuple(WRITERS), inputs=[task])
    spec = choose_method(method, method_options)
    # Imported here because they import torch, without which mistakes in flags answer at once.
    from clearhead.data.read import read_task
    from clearhead.drift.audit import audit as run_audit
    from clearhead.files import write_atomically

    examples = read_task(task, text_column=text_column, label_column=label_column, limit=limit)
    loaded = options.load_model(model, device, None, allow_pickle=allow_pickle)
    result = run_audit(
        loaded,
        examples,
        method=spec,
        words=words or (),
        count=count,
        batch_size=batch_size,
        precision=precision,
    )
    if out is not None:
        write_atomically(out, WRITERS[out.suffix.casefold()](result))
        outputs.announce_file(out)
    _print_result(result, json=json)


def _print_result(result: "Audit", *, json: bool) -> None:
    from clearhead.views import audit_record, audit_terminal, terminal

    if json:
        outputs.print_json(audit_record.record(result))
    else:
        terminal.console(plain=outputs.is_plain()).print(audit_terminal.view(result))


def _to_html(result: "Audit") -> bytes:
    from clearhead.views import audit_html

    return audit_html.page(result).encode()


def _to_markdown(result: "Audit") -> bytes:
    from clearhead.views import audit_markdown

    return audit_markdown.document(result).encode()


def _to_json(result: "Audit") -> bytes:
    from clearhead.views import audit_record

    return outputs.encode_json(audit_record.record(result))


WRITERS: "Mapping[str, Callable[[Audit], bytes]]" = {".html": _to_html, ".md": _to_markdown, ".json": _to_json}

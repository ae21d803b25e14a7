"""clearhead ask."""

from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli import answers, options, outputs
from clearhead.cli.chunks import resolve_check
from clearhead.cli.inputs import InputReader, check_text_column
from clearhead.cli.tables import TableFlags
from clearhead.data.table_endings import TABLE_ENDINGS
from clearhead.errors import BadInput

if TYPE_CHECKING:
    from clearhead.model.model import Model

DEFAULT_LANGUAGE_MODEL = "clearhead/smollm2"
TEXT_ADVICE = "pipe it into clearhead ask -"

Prompts = Annotated[
    list[str],
    typer.Argument(
        metavar="PROMPT",
        show_default=False,
        help=f"A text, - for standard input, a .txt file, or a table of prompts: {', '.join(TABLE_ENDINGS)}.",
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="M",
        autocompletion=options.complete_models,
        help=f"Language model: folder or hub id; default: {DEFAULT_LANGUAGE_MODEL}.",
    ),
]
Chat = Annotated[bool, typer.Option("--chat", help="Pass the prompt as a user's message through the chat template.")]
System = Annotated[str | None, typer.Option(metavar="TEXT", help="System message before the prompt; implies --chat.")]


def ask(
    prompts: Prompts,
    model: ModelName = None,
    method: options.Method = None,
    answer: options.Answer = None,
    versus: options.Foil = None,
    focus: options.Focus = None,
    matrix: options.Matrix = False,
    scale: options.Scale = None,
    max_new_tokens: options.MaxNewTokens = None,
    sources: options.Sources = None,
    image: options.Pictures = None,
    chat: Chat = False,
    system: System = None,
    out: options.Out = None,
    json: options.Json = False,
    method_options: options.MethodOptions = None,
    text_column: options.TextColumn = None,
    precision: options.Precision = None,
    check: options.Check = None,
    no_check: options.NoCheck = False,
    batch_size: options.BatchSize = None,
    device: options.Device = None,
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Let a language model answer, and explain which words of the prompt and of the answer led to it.

    Examples:

    clearhead ask "Which river flows through Paris?" --chat --matrix --out river.html

    clearhead ask "The capital of France is" --answer Paris --versus London

    clearhead ask "Who wrote it?" --sources 'docs/*.txt' --method context-cite

    clearhead ask "What is this?" --image photo.jpg --model M --matrix --out photo.html

    clearhead ask prompts.jsonl --max-new-tokens 20 --json

    clearhead ask answers.jsonl --answer column:answer --versus column:foil --out answers.html
    """
    outputs.check_path(out, inputs=[*prompts, *answers.list_files(image, sources)])
    check_text_column(prompts, text_column)
    flags = answers.AnswerFlags(answer, versus, focus, matrix, scale, max_new_tokens, sources)
    settings = {"precision": precision, "batch_size": batch_size, **flags.settings}
    # Before the model is loaded, which may take long.
    chosen_check = options.choose_check(check, no_check)
    options.check_method(method, method_options)
    reader = InputReader(images=False, text_column=text_column, text_advice=TEXT_ADVICE)
    texts = reader.read(prompts)
    answers.require_texts(texts)
    outputs.check_count(out, len(texts))
    loaded = options.load_model(model or DEFAULT_LANGUAGE_MODEL, device, None, allow_pickle=allow_pickle)
    _require_writer(loaded)
    spec = options.resolve_method(loaded, method, method_options)
    settings["check"] = resolve_check(chosen_check, loaded, len(texts))
    questions = answers.Questions(
        prompts, texts, TableFlags(text_column=text_column), answers.PromptMaker(chat, system, image)
    )
    questions.explain_and_deliver(loaded, spec, settings, out=out, json=json)


def _require_writer(loaded: "Model") -> None:
    if not loaded.writes:
        raise BadInput(
            f"{loaded.name} is no language model: it does not write. Use clearhead explain, or another model."
        )

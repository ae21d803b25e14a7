"""Request and response models of the JSON API, as OpenAPI describes them; an invalid request gets status 422."""

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from clearhead.attribution.names import DEFAULT_ANSWER_METHOD, DEFAULT_METHOD
from clearhead.check import MIN_GROUPS
from clearhead.errors import BadInput
from clearhead.model.focus import parse_focus
from clearhead.trust.controls import Outcome
from clearhead.web.limits import LIMITS

MAX_INTEGER_OPTION = int(LIMITS.max_option)

Text = Annotated[str, Field(max_length=LIMITS.max_characters)]
Name = Annotated[str, Field(max_length=200)]
Integer = Annotated[int, Field(ge=-MAX_INTEGER_OPTION, le=MAX_INTEGER_OPTION)]
Number = Annotated[float, Field(allow_inf_nan=False, ge=-LIMITS.max_option, le=LIMITS.max_option)]
OptionValue = bool | Integer | Number | Name | None
TokenIndex = Annotated[int, Field(ge=0, le=100_000)]
TokenIndices = Annotated[list[TokenIndex], Field(max_length=5_000)]
# Strict: true would be class 1.
ClassChoice = Annotated[int, Field(ge=0, le=1_000_000, strict=True)] | Name | None
Unit = Literal["word", "token"]
Slice = Literal["all", "wrong", "right"]
TaskOrder = Literal["data", "uncertain", "certain"]
CheckChoice = bool | Annotated[int, Field(ge=MIN_GROUPS, le=LIMITS.max_check_groups)]
CharacterIndex = Annotated[int, Field(ge=0, le=LIMITS.max_characters)]
MAX_MESSAGES = 32


class Message(BaseModel):
    """One message of a chat."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "user", "assistant"]
    content: Text


SOURCES = ("text", "pair", "image", "chat")


def _describe_sources(schema: dict[str, Any]) -> None:
    """Add to a schema that exactly one of the inputs is given, which its fields alone do not say."""
    schema["examples"] = [{"text": "a joyless, tedious film"}]
    schema["oneOf"] = [require_source(name) for name in SOURCES]


def require_source(name: str) -> dict[str, Any]:
    """Return the schema of a request that has this input."""
    # null counts as not given.
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


class InputRequest(BaseModel):
    """One input and the target class."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_describe_sources)

    text: Text | None = Field(None, description="One text.")
    pair: tuple[Text, Text] | None = Field(None, description="Two texts that the model reads together.")
    image: Annotated[str, Field(max_length=LIMITS.max_body_bytes)] | None = Field(
        None, description="A JPEG, PNG, WebP, GIF or BMP in base64, with or without a data: prefix."
    )
    chat: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)] | None = Field(
        None, description="The messages of a chat, for language models with a chat template."
    )
    answer: Text | None = Field(None, description="The answer of a language model; default: the model writes it.")
    max_new_tokens: Annotated[int, Field(ge=1, le=LIMITS.max_answer_tokens)] | None = Field(
        None, description="The longest answer that a language model may write."
    )
    focus: tuple[CharacterIndex, CharacterIndex] | Name | None = Field(
        None,
        description="The part of the output that is explained. Of an answer: its characters, start and end; default: "
        "all. Of a model with an output for every word, box or pixel, as --focus takes it: words, a label, #N, "
        "START:END or LEFT,TOP,RIGHT,BOTTOM; default: as `focus` of /api/models says.",
    )
    overflow: Literal["error", "truncate"] = Field(
        "error",
        # `long` is the former name of this field, still accepted from existing clients.
        validation_alias=AliasChoices("overflow", "long"),
        description="What happens to a text longer than the model accepts: an error, or only its start is explained.",
    )
    model: Name | None = Field(None, description="A name from /api/models; default: the first that fits the input.")
    target: ClassChoice = Field(None, description="The class to explain, by label or number; default: the prediction.")
    versus: ClassChoice = Field(
        None, description="Explain the target in contrast to this class; of a language model, to these words."
    )
    span: tuple[TokenIndex, TokenIndex] | None = Field(
        None, description="For models that answer with a span: its first and last token."
    )

    @model_validator(mode="after")
    def _require_one_input(self) -> "InputRequest":
        sources = (self.text, self.pair, self.image, self.chat)
        if sources.count(None) != 3:
            raise ValueError("Give exactly one of text, pair, image and chat.")
        return self

    @property
    def needs_language_model(self) -> bool:
        """Whether a field is given that only language models have."""
        fields = (self.chat, self.answer, self.max_new_tokens, self.answer_focus)
        return fields.count(None) < len(fields)

    @property
    def answer_focus(self) -> tuple[int, int] | None:
        """The characters of an answer that are explained."""
        return None if isinstance(self.focus, str) else self.focus

    @property
    def output_focus(self) -> Any:
        """The part of the output that is explained, of a model with many; blanks leave the choice to it."""
        if not isinstance(self.focus, str):
            return None
        return parse_focus(self.focus.strip() or None)

    @property
    def prompt(self) -> str | list[dict[str, str]]:
        """The prompt of a language model: a text, or the messages of a chat."""
        if self.chat is not None:
            return [message.model_dump() for message in self.chat]
        if self.text is None:
            raise BadInput("A language model takes one text or a chat.")
        return self.text

    @property
    def source(self) -> str | tuple[str, str] | list[dict[str, str]]:
        """The text, the pair of texts, the chat, or the encoded image."""
        if self.chat is not None:
            return self.prompt
        if self.text is not None:
            return self.text
        if self.pair is not None:
            return self.pair
        assert self.image is not None
        return self.image


class ExplainRequest(InputRequest):
    """An input, a target class, and a method with its options."""

    method: Name | None = Field(
        None,
        description="A name from /api/methods, or name:option=value,… "
        "Default: the one chosen for the model, else "
        f"{DEFAULT_METHOD}, for language models {DEFAULT_ANSWER_METHOD}.",
    )
    options: dict[Name, OptionValue] = Field(default_factory=dict, max_length=20, description="Options of the method.")
    matrix: bool = Field(False, description="Of a language model: explain every step of the answer as well.")
    check: CheckChoice = Field(
        False,
        description="Hide the strongest words or patches to see whether they matter more than others, and estimate "
        "errors; a number is that of the groups that words or patches are divided into.",
    )


class HideRequest(InputRequest):
    """Lists of tokens to hide, as indices into `tokens` of the explanation; each list is a forward pass."""

    hidden: Annotated[list[TokenIndices], Field(min_length=1, max_length=64)]
    unit: Unit = Field("word", description="What is hidden at random, as many as are hidden; images use patches.")
    controls: bool = Field(False, description="Also hide as many at random, for each list; each takes many passes.")

    @model_validator(mode="after")
    def _limit_controls(self) -> "HideRequest":
        if self.controls and len(self.hidden) > LIMITS.max_controlled_lists:
            raise ValueError(f"Give at most {LIMITS.max_controlled_lists} lists with controls.")
        return self


class ControlScores(BaseModel):
    """The target's scores with random features hidden, and how the score without the chosen ones compares."""

    mean: float
    low: float
    high: float
    sets: int = Field(description="How many times random features were hidden.")
    verdict: Outcome = Field(
        description="Whether the chosen features matter more or less than random ones: an exact rank test, p ≤ 0.05."
    )


class HideResponse(BaseModel):
    """For each list of hidden tokens, the target's score and the probability of every class.

    The score of an answer is its log-probability; against other words, the difference of logits.
    """

    values: list[float]
    classes: list[list[float]]
    controls: list[ControlScores] | None = Field(
        None, description="One for each list, if they were asked for and the input is not too long."
    )


class CurveRequest(ExplainRequest):
    """An explanation whose most relevant features are hidden step by step."""

    unit: Unit = Field("word", description="What is hidden at once; images always use patches.")
    block: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None, description="Take the relevance of this block, from 1 to the length of `layers`; default: of all."
    )


class CurveResponse(BaseModel):
    """The target's score as the most relevant features are hidden, and as random ones are."""

    order: list[list[int]] = Field(description="Token indices of each feature, the most relevant first.")
    counts: list[int] = Field(description="How many features are hidden at each step.")
    values: list[float]
    measured: list[int] = Field(description="The counts at which random features were hidden; others lie between.")
    random: list[float] = Field(description="The mean over random orders.")
    low: list[float]
    high: list[float]


class ProgressInfo(BaseModel):
    """How far a request is."""

    state: Literal["waiting", "running", "unknown"] = Field(
        description="unknown: no request with this ticket is waiting or being computed."
    )
    ahead: int = Field(description="Requests that are computed before this one.")
    done: int = Field(description="Finished steps of the present part of the work.")
    total: int | None = Field(description="Steps of the present part, if their number is known.")
    label: str = Field(description="What the steps are, such as passes.")


class ErrorBody(BaseModel):
    """A readable error message."""

    error: str


class ModelInfo(BaseModel):
    """A model of this server."""

    name: str
    kind: Literal["text", "image"]
    problem: str = Field(description="answer for language models.")
    labels: list[str]
    compares: bool = Field(description="Whether it compares a picture or a text with texts: see /api/similarity.")
    chat: bool = Field(description="Whether it has a chat template.")
    focus: str = Field(description="What `focus` may name of its output, and what it is by default; empty if nothing.")
    method: str = Field(description="The method that explains it unless another is named.")
    chosen: bool = Field(description="Whether `clearhead choose` has chosen that method for this model.")
    summary: str


class MethodInfo(BaseModel):
    """A method and its options with their defaults."""

    name: str
    summary: str
    paper: str
    signed: bool
    class_specific: bool
    options: dict[str, Any]
    group: str = Field(description="The group of the page's menu that it is in.")
    title: str = Field(description="What it does, in a few words; empty for methods that are not Clearhead's.")
    inputs: list[str] = Field(description="What it explains: text, image, prompt.")


class RunInfo(BaseModel):
    """A benchmark run of this server."""

    name: str
    methods: list[str]
    metrics: list[str]
    labels: list[str] = Field(description="All classes that examples have, or are predicted to have.")
    error: str = Field(description="Why the run cannot be read; empty if it can.")


class ListedExample(BaseModel):
    """One example with its right label and its prediction."""

    example: str
    text: list[str] = Field(description="The text, two for a pair, none for an image.")
    label: str
    probability: float | None
    gold: str | None = Field(description="The right label, if the data has one.")
    predicted: str | None
    wrong: bool | None = Field(description="Whether the prediction differs from the right label, if both are known.")
    model: str
    picture: bool = Field(description="Whether …/NAME/picture has its image.")


class Example(ListedExample):
    """One example of a run and its metric value."""

    value: float


class Examples(BaseModel):
    """One page of a run's examples, in order, and how many there are with this filter."""

    total: int
    wrong: int = Field(description="How many of all are predicted wrongly.")
    right: int
    examples: list[Example]


class TaskInfo(BaseModel):
    """Data of this server."""

    name: str
    examples: int
    models: list[str] = Field(description="The models of this server that sort such inputs into classes.")


class PredictionProgress(BaseModel):
    """How many examples of a task a model has predicted."""

    done: int
    total: int


class PredictRequest(BaseModel):
    """A task and the model that predicts its next examples."""

    model_config = ConfigDict(extra="forbid")

    task: Name
    model: Name


class TaskExamples(BaseModel):
    """One page of a task's examples, and how many there are with this filter."""

    total: int
    wrong: int = Field(description="How many of all are known to be predicted wrongly.")
    right: int
    predicted: PredictionProgress = Field(description="Of all examples; /api/predict computes more.")
    examples: list[ListedExample]

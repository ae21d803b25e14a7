"""What a request may hold, as OpenAPI describes it; whatever does not fit is answered with 422."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from clearhead.web.limits import LIMITS

Text = Annotated[str, Field(max_length=LIMITS.characters)]
Name = Annotated[str, Field(max_length=200)]
Number = Annotated[float, Field(allow_inf_nan=False, ge=-LIMITS.option, le=LIMITS.option)]
Value = bool | Annotated[int, Field(ge=-int(LIMITS.option), le=int(LIMITS.option))] | Number | Name | None
Place = Annotated[int, Field(ge=0, le=100_000)]
Places = Annotated[list[Place], Field(max_length=5_000)]
Class = Annotated[int, Field(ge=0, le=1_000_000)] | Name | None


class InputRequest(BaseModel):
    """One input and the class that is asked about."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": "a joyless, tedious film"}]})

    text: Text | None = Field(None, description="One text.")
    pair: tuple[Text, Text] | None = Field(None, description="Two texts that are read together.")
    image: Annotated[str, Field(max_length=LIMITS.body)] | None = Field(
        None, description="A JPEG, PNG, WebP, GIF or BMP in base64, with or without a data: prefix."
    )
    long: Literal["error", "truncate"] = Field(
        "error", description="A text longer than the model takes is refused, or its first part is explained."
    )
    model: Name | None = Field(None, description="A name from /api/models; the first that fits without it.")
    target: Class = Field(None, description="The class to explain, by label or number; else the prediction.")
    versus: Class = Field(None, description="Explain the class rather than this one.")
    span: tuple[Place, Place] | None = Field(None, description="Of a model that answers with a span: its two tokens.")

    @model_validator(mode="after")
    def _one_input(self) -> "InputRequest":
        if sum(one is not None for one in (self.text, self.pair, self.image)) != 1:
            raise ValueError("Give exactly one of text, pair and image.")
        return self

    @property
    def source(self) -> str | tuple[str, str]:
        found = self.text if self.text is not None else self.pair if self.pair is not None else self.image
        assert found is not None
        return found


class ExplainRequest(InputRequest):
    """An input, a class, and a method with its options."""

    method: Name = Field("trans-att", description="A name from /api/methods, or name:option=value,…")
    options: dict[Name, Value] = Field(default_factory=dict, max_length=20, description="Options of the method.")


class HideRequest(InputRequest):
    """Which tokens (places in `tokens` of the explanation) are hidden, one list per trial."""

    hidden: Annotated[list[Places], Field(min_length=1, max_length=64)]


class HideResponse(BaseModel):
    """Per trial what the model says; the target's share first."""

    values: list[float]
    classes: list[list[float]]


class CurveRequest(ExplainRequest):
    """How the answer moves as the most relevant parts are hidden."""

    unit: Literal["word", "token"] = Field("word", description="What is hidden at once; an image has patches only.")


class CurveResponse(BaseModel):
    """The most relevant parts hidden step by step, beside random orders."""

    order: list[list[int]] = Field(description="Token places of each part, the most relevant first.")
    counts: list[int] = Field(description="How many parts are hidden at each step.")
    values: list[float]
    random: list[float] = Field(description="The mean over random orders.")
    low: list[float]
    high: list[float]


class ErrorBody(BaseModel):
    """What was wrong, for people."""

    error: str


class ModelInfo(BaseModel):
    """A model of this server."""

    name: str
    kind: Literal["text", "image"]
    problem: str
    labels: list[str]
    summary: str


class MethodInfo(BaseModel):
    """A method and its options with their defaults."""

    name: str
    summary: str
    paper: str
    signed: bool
    class_specific: bool
    options: dict[str, Any]


class RunInfo(BaseModel):
    """A benchmark run of this server."""

    name: str
    methods: list[str]
    metrics: list[str]


class Example(BaseModel):
    """One example of a run and its value."""

    example: str
    value: float
    text: list[str] = Field(description="The text, two for a pair, none for a picture.")
    label: str
    probability: float | None
    model: str
    picture: bool = Field(description="Whether /api/runs/NAME/picture has it.")


class Examples(BaseModel):
    """A part of a run's examples, in order."""

    total: int
    examples: list[Example]

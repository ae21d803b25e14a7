"""Request and response models of /api/similarity: a picture or a text, and the texts that it is compared with."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from clearhead.attribution.names import DEFAULT_METHOD
from clearhead.web.limits import LIMITS
from clearhead.web.schemas import CheckChoice, ClassChoice, Name, OptionValue, Text, require_source

MAX_TEXTS = LIMITS.max_compared_texts


def _describe_sources(schema: dict[str, Any]) -> None:
    """Add to a schema that exactly one first input is given, which its fields alone do not say."""
    schema["examples"] = [{"text": "A man eats.", "texts": ["Someone has lunch."]}]
    schema["oneOf"] = [require_source(name) for name in ("text", "image")]


class SimilarityRequest(BaseModel):
    """A picture or a text, the texts that it is compared with, and a method with its options."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_describe_sources)

    image: Annotated[str, Field(max_length=LIMITS.max_body_bytes)] | None = Field(
        None, description="The picture: a JPEG, PNG, WebP, GIF or BMP in base64, with or without a data: prefix."
    )
    text: Text | None = Field(None, description="The first text, for models that compare texts.")
    texts: Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)] = Field(
        description="The texts that the picture or text is compared with; together as long as one text may be."
    )
    overflow: Literal["error", "truncate"] = Field(
        "error",
        description="What happens to a text longer than the model accepts: an error, or its start is read.",
    )
    model: Name | None = Field(None, description="A name from /api/models; default: the first that compares these.")
    target: ClassChoice = Field(
        None, description="The text to explain, itself or its number; default: the most similar."
    )
    versus: ClassChoice = Field(None, description="Explain the target in contrast to this text.")
    method: Name | None = Field(
        None, description=f"A name from /api/methods; default: the one chosen for the model, else {DEFAULT_METHOD}."
    )
    options: dict[Name, OptionValue] = Field(default_factory=dict, max_length=20, description="Options of the method.")
    check: CheckChoice = Field(False, description="Hide the strongest patches and words, each by itself.")

    @field_validator("texts")
    @classmethod
    def _refuse_empty_texts(cls, texts: list[str]) -> list[str]:
        if not all(map(str.strip, texts)):
            raise ValueError("Invalid texts: one of them is empty.")
        return texts

    @field_validator("texts")
    @classmethod
    def _limit_characters(cls, texts: list[str]) -> list[str]:
        if sum(map(len, texts)) > LIMITS.max_characters:
            raise ValueError(f"Give texts of at most {LIMITS.max_characters:,} characters together.")
        return texts

    @model_validator(mode="after")
    def _require_one_first_input(self) -> "SimilarityRequest":
        if (self.image is None) == (self.text is None):
            raise ValueError("Give exactly one of image and text.")
        return self


class ComparedText(BaseModel):
    """One of the texts, with what the model says of it."""

    text: str
    score: float
    probability: float | None = Field(description="The softmax over all texts, or SigLIP's sigmoid; null for one.")

"""Methods that were chosen for single models: a small file among the user's settings, by checksum of the weights."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clearhead.environment import CONFIG_VARIABLE, config_folder
from clearhead.errors import BadFile, BadOption
from clearhead.files import unreadable_file, write_atomically
from clearhead.model.checksum import count_weights, weights_checksum
from clearhead.model.model import Model

FILE = "choices.json"
FORMAT = 1
SHOWN_DIGITS = 12


@dataclass(frozen=True)
class Choice:
    """The method chosen for a model, and what the choice rests on.

    `model` is the name under which the model was loaded; `checksum` and the number of `weights` identify it.
    `summary` says in a sentence why the method was chosen.
    """

    method: str
    model: str
    checksum: str
    weights: int
    date: str
    examples: int
    metrics: tuple[str, ...]
    data: str
    summary: str

    @property
    def note(self) -> str:
        """What an explanation says about its method."""
        return f"chosen for this model by clearhead choose on {self.date}"


def choices_path() -> Path:
    """Return the file in which choices are kept."""
    return config_folder() / FILE


def read_choices() -> dict[str, Choice]:
    """Return the choices on file by checksum; none without a file."""
    path = choices_path()
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise unreadable_file(path, error) from error
    try:
        return _parse(json.loads(content))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadFile(f"'{path}' is damaged: remove it, and choose again with clearhead choose.") from error


def _parse(content: Mapping[str, Any]) -> dict[str, Choice]:
    _require_format(content)
    return {checksum: _parse_choice(entry) for checksum, entry in content["choices"].items()}


def _require_format(content: Mapping[str, Any]) -> None:
    # A later format may mean something else by the same names.
    if content["format"] != FORMAT:
        raise ValueError(content["format"])


def _parse_choice(entry: Mapping[str, Any]) -> Choice:
    return Choice(**{**entry, "metrics": tuple(entry["metrics"])})


def find_choice(model: Model) -> Choice | None:
    """Return the choice made for these weights; None without one."""
    # Functions have no weights that tell them apart.
    if model.is_function:
        return None
    choices = read_choices()
    # Hashing reads all weights: only if a choice was made for a model of this size.
    if not _has_size(choices, model):
        return None
    return choices.get(weights_checksum(model))


def _has_size(choices: Mapping[str, Choice], model: Model) -> bool:
    if not choices:
        return False
    weights = count_weights(model)
    return any(choice.weights == weights for choice in choices.values())


def save_choice(choice: Choice) -> Path:
    """Keep a choice in place of an earlier one for the same model, and return the file."""
    return _write({**read_choices(), choice.checksum: choice})


def forget_choice(name: str) -> list[Choice]:
    """Remove the choices for a model, by the name it was chosen under or the beginning of its checksum."""
    choices = read_choices()
    forgotten = [choice for choice in choices.values() if _is_meant(choice, name)]
    _require_choice(name, forgotten, choices)
    for choice in forgotten:
        del choices[choice.checksum]
    _write(choices)
    return forgotten


def _require_choice(name: str, forgotten: list[Choice], choices: dict[str, Choice]) -> None:
    if not forgotten:
        raise BadOption(f"No method was chosen for '{name}'. {_list_models(choices)}")


def _is_meant(choice: Choice, name: str) -> bool:
    is_checksum = len(name) >= SHOWN_DIGITS and choice.checksum.startswith(name)
    return choice.model == name or is_checksum


def _list_models(choices: Mapping[str, Choice]) -> str:
    if not choices:
        return "There are no choices."
    return f"Choices: {', '.join(sorted(choice.model for choice in choices.values()))}."


def _write(choices: Mapping[str, Choice]) -> Path:
    path = choices_path()
    entries = {checksum: asdict(choice) for checksum, choice in choices.items()}
    content = json.dumps({"format": FORMAT, "choices": entries}, indent=1, ensure_ascii=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFile(
            f"'{path.parent}' cannot be made: {error.strerror}. Name a folder with CLEARHEAD_CONFIG."
        ) from error
    write_atomically(path, f"{content}\n".encode("utf-8", "surrogatepass"))
    return path


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFile(f"'{folder}' cannot be made: {error.strerror}. Name another with {CONFIG_VARIABLE}.") from error


def choices() -> dict[str, Choice]:
    """Return the methods that were chosen for single models, by the name of the model.

    Of models with the same name, such as two states of training, those chosen for later have their checksum as well.
    """
    named: dict[str, Choice] = {}
    for checksum, choice in read_choices().items():
        name = choice.model
        if name in named:
            name = f"{name} ({checksum[:SHOWN_DIGITS]})"
        named[name] = choice
    return named

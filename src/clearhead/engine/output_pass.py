"""Forward passes of which only the outputs are known: of functions, and of networks that cannot be recorded."""

from dataclasses import dataclass
from typing import NoReturn

from torch import Tensor

from clearhead.engine.context import eager_inference
from clearhead.engine.forward import ForwardPass
from clearhead.engine.patches import choose_cells
from clearhead.engine.tape import Tape
from clearhead.errors import UnsupportedModel
from clearhead.model.inputs import Inputs
from clearhead.model.model import Model
from clearhead.model.outputs import extract_logits


@dataclass(frozen=True, eq=False)
class OutputPass(ForwardPass):
    """A forward pass without activations, for methods that only need outputs."""

    def _refuse(self) -> NoReturn:
        raise UnsupportedModel(
            f"Of {self.name} only the outputs are known, neither gradients nor attention: choose a method that needs "
            "no more, such as occlusion, lime or shapley-sampling."
        )

    @property
    def attentions(self) -> list[Tensor]:
        self._refuse()

    @property
    def block_inputs(self) -> list[Tensor]:
        self._refuse()

    @property
    def hidden_states(self) -> list[Tensor]:
        self._refuse()

    @property
    def leaf(self) -> Tensor:
        self._refuse()

    def require_attentions(self) -> None:
        self._refuse()

    def require_blocks(self) -> None:
        self._refuse()

    @property
    def token_shape(self) -> tuple[int, int]:
        return self.cell_shape


def run_outputs(model: Model, inputs: Inputs) -> OutputPass:
    """Run a network once without recording it."""
    with eager_inference(model.network, model.device):
        logits = extract_logits(model, model.network(**inputs.tensors))
    # Cloned outside inference mode: an ordinary tensor, which autograd accepts.
    return OutputPass(model.name, Tape(patches=_choose_grid(inputs)), logits.clone())


def _choose_grid(inputs: Inputs) -> tuple[int, int] | None:
    pixels = inputs.tensors.get("pixel_values")
    if pixels is None:
        return None
    return choose_cells(pixels)

"""Layouts in which networks look up the words of their input.

Most look up the input's tokens as they are. XLNet has tokens before samples, Longformer adds padding up to a multiple
of its window, and the decoder of an encoder–decoder that classifies reads the same text behind a start token.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

Call = Callable[..., Tensor]


class WordLayout(ABC):
    """How the tokens of a look-up stand to those of the input (B,T)."""

    @abstractmethod
    def matches(self, looked_up: Tensor, ids_BT: Tensor) -> bool:
        """Return whether these token ids are the input's in this layout."""

    @abstractmethod
    def arrange(self, words_BTD: Tensor, embedded: Tensor, call: Call) -> Tensor:
        """Return the input's embeddings in this layout; what is not of the input is taken from `embedded`.

        `call` calls a torch function, so that a recorder can note it.
        """

    def restore(self, embedded: Tensor, ids_BT: Tensor | None) -> Tensor:
        """Return the embeddings of the input's tokens as (B,T,D)."""
        return embedded


class InputLayout(WordLayout):
    """The tokens of the input as they are."""

    def matches(self, looked_up: Tensor, ids_BT: Tensor) -> bool:
        # Identity first: comparing values waits for the device.
        return looked_up is ids_BT or _are_equal(looked_up, ids_BT)

    def arrange(self, words_BTD: Tensor, embedded: Tensor, call: Call) -> Tensor:
        return words_BTD


class TransposedLayout(WordLayout):
    """Tokens before samples."""

    def matches(self, looked_up: Tensor, ids_BT: Tensor) -> bool:
        return _are_equal(looked_up, ids_BT.T)

    def arrange(self, words_BTD: Tensor, embedded: Tensor, call: Call) -> Tensor:
        return call(torch.transpose, words_BTD, 0, 1)

    def restore(self, embedded: Tensor, ids_BT: Tensor | None) -> Tensor:
        return embedded.transpose(0, 1)


class PaddedLayout(WordLayout):
    """The tokens of the input with padding after them."""

    def matches(self, looked_up: Tensor, ids_BT: Tensor) -> bool:
        return looked_up.dim() == 2 and _are_equal(looked_up[:, : ids_BT.shape[1]], ids_BT)

    def arrange(self, words_BTD: Tensor, embedded: Tensor, call: Call) -> Tensor:
        padding = embedded[:, words_BTD.shape[1] :].detach()
        return call(torch.cat, [words_BTD, padding], 1)

    def restore(self, embedded: Tensor, ids_BT: Tensor | None) -> Tensor:
        assert ids_BT is not None
        return embedded[:, : ids_BT.shape[1]]


class ShiftedLayout(WordLayout):
    """The tokens of the input behind a start token, without the last one."""

    def matches(self, looked_up: Tensor, ids_BT: Tensor) -> bool:
        return looked_up.shape == ids_BT.shape and _are_equal(looked_up[:, 1:], ids_BT[:, :-1])

    def arrange(self, words_BTD: Tensor, embedded: Tensor, call: Call) -> Tensor:
        start = embedded[:, :1].detach()
        return call(torch.cat, [start, call(torch.narrow, words_BTD, 1, 0, words_BTD.shape[1] - 1)], 1)


INPUT_LAYOUT = InputLayout()
FIRST_LAYOUTS: tuple[WordLayout, ...] = (INPUT_LAYOUT, TransposedLayout(), PaddedLayout())
LATER_LAYOUTS = (*FIRST_LAYOUTS, ShiftedLayout())


def find_layout(looked_up: Tensor, ids_BT: Tensor | None, *, is_first: bool) -> WordLayout | None:
    """Return the layout of a look-up; None if it has other tokens than the input."""
    # Of tokens that came under another name nothing better is known.
    if ids_BT is None:
        return INPUT_LAYOUT if is_first else None
    # Behind a start token, a first look-up would lack the input's last word.
    for layout in FIRST_LAYOUTS if is_first else LATER_LAYOUTS:
        if layout.matches(looked_up, ids_BT):
            return layout
    return None


def _are_equal(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and bool((first == second).all())

"""Networks with an output for every word, box or pixel, reduced to the classes of the part that is explained."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

FOCUS = "focus"
"""The input tensor that says which part of the output is explained; its meaning depends on the network."""
STARTS = 1
CONTINUES = 2
"""What `focus` (B,T) holds at the tokens of a word or entity, the first and the others; 0 elsewhere."""


# Detectors whose softmax has a class more, for boxes without an object; others decide by a sigmoid per class.
SOFTMAX_DETECTORS = ("DetrFor", "YolosFor", "TableTransformerFor")


class FocusNetwork(nn.Module, ABC):
    """A stock network, unmodified, whose output is reduced to the logits of one part of it (B,C)."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.config = network.config
        self.main_input_name = getattr(network, "main_input_name", "input_ids")
        # Not train(), which would set the mode of every layer of the network.
        self.training = network.training

    def get_input_embeddings(self) -> Any:
        return self.network.get_input_embeddings()

    def forward(self, focus: Tensor, **tensors: Tensor) -> Tensor:
        """Return the logits of the part that `focus` names."""
        return self.select(self.read_all(**tensors), focus)

    def read_all(self, **tensors: Tensor) -> Tensor:
        """Return the logits of all parts of the output."""
        logits: Tensor = self.run(**tensors).logits
        return logits

    def run(self, **tensors: Tensor) -> Any:
        """Return the network's own output."""
        return self.network(**tensors, return_dict=True)

    @abstractmethod
    def select(self, logits: Tensor, focus: Tensor) -> Tensor:
        """Return the logits (B,C) of the part that `focus` names."""


class TokenNetwork(FocusNetwork):
    """A network with logits for every token (B,T,C).

    Of a word or entity of several tokens the logits are averaged; where labels tell the first token of an entity from
    the others ("B-PER", "I-PER"), the class of the first stands for both.
    """

    def select(self, logits: Tensor, focus: Tensor) -> Tensor:
        positions_BN = _list_marked(focus)
        marks_BN = focus.gather(1, positions_BN)
        picked_BNC = self._pick(logits, positions_BN, marks_BN)
        # No sum where there is nothing to add: relevance would be divided once more.
        if picked_BNC.shape[1] == 1:
            return picked_BNC[:, 0]
        return _average_tokens(picked_BNC, marks_BN != 0)

    def _pick(self, logits_BTC: Tensor, positions_BN: Tensor, marks_BN: Tensor) -> Tensor:
        """Return the logits at some positions (B,N,C), those of the continuing class where a token continues."""
        class_BNC = self._choose_classes(marks_BN, logits_BTC.shape[-1])
        index_BNC = positions_BN[..., None] * logits_BTC.shape[-1] + class_BNC
        picked_BX = logits_BTC.flatten(1).gather(1, index_BNC.flatten(1))
        return picked_BX.reshape(index_BNC.shape)

    def _choose_classes(self, marks_BN: Tensor, classes: int) -> Tensor:
        """Return which class is read at each token for each class (B,N,C)."""
        first_C = torch.arange(classes, device=marks_BN.device)
        continued_C = torch.tensor(self.list_continued(classes), device=marks_BN.device)
        return torch.where(marks_BN[..., None] == CONTINUES, continued_C, first_C)

    def list_continued(self, classes: int) -> Sequence[int]:
        """Return for each class the one that its further tokens have."""
        names = getattr(self.config, "id2label", None) or {}
        numbers = {str(name): index for index, name in names.items()}
        # A class without a continuing one, such as O, continues itself.
        return [numbers.get(_continue_name(str(names.get(index, ""))), index) for index in range(classes)]


def _list_marked(focus_BT: Tensor) -> Tensor:
    """Return the positions of the marked tokens of each row (B,N), and of some others where a row has fewer."""
    # Sorted, so that the positions of all rows fill as few columns as possible; stable, to keep their order.
    order_BT = torch.argsort((focus_BT == 0).int(), dim=1, stable=True)
    return order_BT[:, : _count_columns(focus_BT)]


def _count_columns(focus_BT: Tensor) -> int:
    # A row without a mark has a column as well.
    return max(1, int((focus_BT != 0).sum(1).max()))


def _average_tokens(logits_BNC: Tensor, is_marked_BN: Tensor) -> Tensor:
    # Rows with fewer tokens are filled up with some that do not count.
    count_B1 = is_marked_BN.sum(1, keepdim=True).clamp(min=1)
    weight_BN = _divide(is_marked_BN, count_B1, logits_BNC.dtype)
    return (logits_BNC * weight_BN[..., None]).sum(1)


def _divide(marks: Tensor, count: Tensor, dtype: torch.dtype) -> Tensor:
    """Return marks divided by their number, in the type of the logits."""
    # Truth values would be divided in torch's default type, and a type of 16 bits cannot hold every count.
    wide = torch.promote_types(dtype, torch.float32)
    return (marks.to(wide) / count).to(dtype)


def _continue_name(name: str) -> str:
    """Return the label of the further tokens of an entity; "" if the label does not begin one."""
    if name.startswith("B-"):
        return f"I-{name[2:]}"
    return ""


class MaskedWordNetwork(TokenNetwork):
    """A masked-language model: the classes of a masked token are the words of the vocabulary."""

    def list_continued(self, classes: int) -> Sequence[int]:
        return range(classes)


class BoxNetwork(FocusNetwork):
    """A network that finds objects: logits for every box it may find (B,N,C); `focus` (B,1) is the index of one."""

    @property
    def has_background(self) -> bool:
        """Whether the last class means that there is no object."""
        return type(self.network).__name__.startswith(SOFTMAX_DETECTORS)

    @property
    def trailing_tokens(self) -> int:
        """How many tokens for boxes stand behind the patches."""
        return int(getattr(self.config, "num_detection_tokens", 0))

    @property
    def has_decoder(self) -> bool:
        """Whether boxes are found by a decoder that looks at the picture, instead of by tokens among its patches."""
        return self.trailing_tokens == 0

    def select(self, logits: Tensor, focus: Tensor) -> Tensor:
        return select_box(logits, focus)


def select_box(values_BNC: Tensor, index_B1: Tensor) -> Tensor:
    """Return the values of one box of each input (B,C)."""
    index_B1C = index_B1[..., None].expand(-1, -1, values_BNC.shape[-1])
    return values_BNC.gather(1, index_B1C)[:, 0]


class PixelNetwork(FocusNetwork):
    """A network that labels pixels: logits (B,C,P,Q); `focus` (B,P,Q) marks those whose mean is explained."""

    def select(self, logits: Tensor, focus: Tensor) -> Tensor:
        count_B = focus.flatten(1).sum(1).clamp(min=1)
        weight_BPQ = _divide(focus, count_B[:, None, None], logits.dtype)
        weighted_BCPQ = logits * weight_BPQ[:, None]
        return weighted_BCPQ.flatten(2).sum(2)


WRAPPERS: dict[str, type[FocusNetwork]] = {
    "ForTokenClassification": TokenNetwork,
    "ForMaskedLM": MaskedWordNetwork,
    "ForObjectDetection": BoxNetwork,
    "ForSemanticSegmentation": PixelNetwork,
}
"""Ending of an architecture's name to the network that reduces its output."""


def wrap_focus(network: Any) -> Any:
    """Return a network that answers for one part of its output, or the network itself if it has one output only."""
    for ending, wrapper in WRAPPERS.items():
        if type(network).__name__.endswith(ending):
            return wrapper(network)
    return network

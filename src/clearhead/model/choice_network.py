"""Multiple choice: a network that scores one choice at a time, since its choices do not read each other."""

from typing import Any

from torch import Tensor, nn


class ChoiceNetwork(nn.Module):
    """A stock network for multiple choice, unmodified, that takes pairs of context and choice (B,T) as inputs (B,1,T).

    Its output is the logit of each (B,1). The choices of one context only meet in the softmax over their logits.
    """

    main_input_name = "input_ids"

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.config = network.config
        # Not train(), which would set the mode of every layer of the network.
        self.training = network.training

    def get_input_embeddings(self) -> Any:
        return self.network.get_input_embeddings()

    def forward(self, **tensors: Tensor) -> Tensor:
        """Return the logit of each pair."""
        # A choice alone gets the logit that it has among others.
        single = {name: tensor[:, None] for name, tensor in tensors.items()}
        logits: Tensor = self.network(**single, return_dict=True).logits
        return logits


def wrap_choices(network: Any) -> Any:
    """Return a network that scores one choice at a time, or the network itself if it does not choose."""
    if type(network).__name__.endswith("ForMultipleChoice"):
        return ChoiceNetwork(network)
    return network

"""Which networks that read a picture and a text together can be explained."""

from typing import Any

from clearhead.model.bridge_tower_network import BridgeTowerNetwork
from clearhead.model.flava_network import FlavaNetwork
from clearhead.model.joined_networks import BlipNetwork, JoinedNetwork, LxmertNetwork, ViltNetwork, VisualBertNetwork

WRAPPERS: dict[str, type[JoinedNetwork]] = {
    "ViltForQuestionAnswering": ViltNetwork,
    "ViltForImageAndTextRetrieval": ViltNetwork,
    "VisualBertForQuestionAnswering": VisualBertNetwork,
    "VisualBertForVisualReasoning": VisualBertNetwork,
    "LxmertForQuestionAnswering": LxmertNetwork,
    "BlipForImageTextRetrieval": BlipNetwork,
    "FlavaForPreTraining": FlavaNetwork,
    "BridgeTowerForImageAndTextRetrieval": BridgeTowerNetwork,
}
"""Stock networks by class name."""


def wrap_joined(network: Any) -> Any:
    """Return a network that takes joined embeddings, or the network itself if it is of no such family."""
    wrapper = WRAPPERS.get(type(network).__name__)
    return network if wrapper is None else wrapper(network)

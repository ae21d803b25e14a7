"""Models, inputs and method names of the tests of baseline methods."""

from typing import Any

import torch
from helpers.pictures import picture
from helpers.tiny_models import bert, llama, vit

from clearhead.model.model import Model

SAMPLED = ["smooth-gradient", "gradient-shap", "deeplift-shap", "lime", "shapley-sampling"]
ADDED = ["attention-flow", "integrated-gradients", *SAMPLED, "occlusion"]
TEXTS = ["a fine film with no plot", ("is it good", "it is really bad . a film"), "film"]
IDS = torch.tensor([[5, 6, 7, 8, 9, 10], [7, 8, 9, 0, 0, 0]])
DECODER = {"input_ids": IDS, "attention_mask": (IDS != 0).long()}


def cases() -> dict[str, tuple[Model, Any]]:
    return {"bert": (bert(), TEXTS), "vit": (vit(), [picture(), picture(1)]), "llama": (llama(), DECODER)}

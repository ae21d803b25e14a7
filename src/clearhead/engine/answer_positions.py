"""Which tokens the explained steps of an answer depend on, and are predicted from."""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.model.target import AnswerTarget, Target


def precedes_answer(targets: Sequence[Target], positions_BN: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the real tokens up to the one that the last explained step of each answer is predicted from."""
    is_read_BT = torch.zeros_like(mask_BT)
    # A step is predicted from the token before it, which sees none of the tokens that follow.
    for row, steps in enumerate(_list_steps(targets)):
        last = int(positions_BN[row, max(steps)])
        is_read_BT[row, : last + 1] = True
    return mask_BT & is_read_BT


def read_answer(targets: Sequence[Target], positions_BN: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the tokens that the explained steps are predicted from, in equal shares."""
    reading_BT = torch.zeros(mask_BT.shape, device=mask_BT.device)
    for row, steps in enumerate(_list_steps(targets)):
        reading_BT[row, positions_BN[row, steps]] = 1 / len(steps)
    return reading_BT


def _list_steps(targets: Sequence[Target]) -> list[list[int]]:
    return [list(target.steps) for target in targets if isinstance(target, AnswerTarget)]

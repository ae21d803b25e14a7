"""The metrics, one file per question; importing this package registers them, calling it lists them."""

from clearhead.metric import METRICS
from clearhead.metrics import faithfulness
from clearhead.registry import answers

__all__ = ["faithfulness"]

answers(__name__, lambda: METRICS)

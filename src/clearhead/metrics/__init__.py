"""The metrics, one file per question; importing this package registers them, calling it lists them."""

from clearhead.metric import METRICS
from clearhead.metrics import confidence, corpus, faithfulness, localisation, plausibility, sanity
from clearhead.registry import answers

__all__ = ["confidence", "corpus", "faithfulness", "localisation", "plausibility", "sanity"]

answers(__name__, lambda: METRICS)

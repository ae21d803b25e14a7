"""The methods, one file per family; importing this package registers them."""

from clearhead.methods import activation, attention, control, decoded, gradient, relevance

__all__ = ["activation", "attention", "control", "decoded", "gradient", "relevance"]

"""One recorded forward pass, and the gradients and relevance computed from it."""

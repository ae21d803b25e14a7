"""Layer-wise relevance propagation: rules, rule sets and the walk back over the tape."""

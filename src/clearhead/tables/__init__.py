"""Tables of any size in, explanations as a table out."""

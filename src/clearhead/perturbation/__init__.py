"""Inputs with features removed: what is removed, by what it is replaced, and the passes."""

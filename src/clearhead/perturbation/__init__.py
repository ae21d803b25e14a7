"""Inputs with features removed: feature groups, replacements, forward passes and removal curves."""

"""What changed between two models: snapshots of their reasons, how far these agree, and what of it is noise."""

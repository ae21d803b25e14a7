"""The recipes that made the embedded models: `python -m training.text` and `python -m training.image`."""

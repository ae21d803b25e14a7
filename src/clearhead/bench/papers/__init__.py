"""Tables and figures of papers as data: methods and metrics; users choose the model and the data."""

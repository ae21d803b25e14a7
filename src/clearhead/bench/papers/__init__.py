"""The papers' tables and figures as data: which methods and which metrics; users name the model and the data."""

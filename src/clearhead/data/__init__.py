"""Tasks: data sets read from files, folders and the Hugging Face hub."""

"""Views: pure functions from explanations to text, HTML and images."""

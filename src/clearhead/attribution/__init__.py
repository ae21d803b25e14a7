"""Attribution methods, one module per family, and the loop that applies them to batches of inputs."""

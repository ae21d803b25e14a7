"""A Ray cluster on this machine for tests."""

import os
from contextlib import contextmanager
from pathlib import Path

import clearhead


@contextmanager
def start_cluster(workers):
    """Start Ray with workers that find the package where the tests do."""
    import ray

    path = os.pathsep.join([str(Path(clearhead.__file__).parents[1]), str(Path(__file__).parents[1])])
    variables = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ.setdefault("RAY_worker_niceness", "0")  # beside other tests they would wait for minutes
    ray.init(
        address="local",
        num_cpus=workers,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": variables},
        object_store_memory=100_000_000,
    )
    try:
        yield
    finally:
        ray.shutdown()

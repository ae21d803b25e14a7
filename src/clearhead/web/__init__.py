"""The page and its JSON interface: ask, see, test, keep, on the models named at the start and on nothing else."""

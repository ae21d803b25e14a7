"""Where jobs are run: here, or on a Ray cluster; both answer with the same outcomes, in any order."""

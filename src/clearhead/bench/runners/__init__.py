"""Runners: where jobs run, in this process or on a Ray cluster; both yield the same results, in any order."""

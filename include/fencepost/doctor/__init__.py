"""What would make a run fail or lose its guarantee, and what to do: checks that change nothing, each a small function.

Only `fencepost doctor` calls it. Of the checks in `preflight`, which the steps make too, it asks all.
"""

"""The checks of `fencepost doctor`: what would make a run fail or lose its guarantee, and what to do.

Each check is a small function that changes nothing. The doctor also runs all checks of `preflight`, which the steps share.
"""

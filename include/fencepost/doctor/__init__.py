"""The checks of `fencepost doctor`. The checks find what would make a run fail or lose its guarantee, and say what to
do.

Each check is a small function that changes nothing. The steps also make some of these checks, before they change
anything (`folder.py`, `limits.py`, `rights.py`).
"""

"""The checks of `fencepost doctor`: what would make a run fail or lose its guarantee, and what to do.

Each check is a small function that changes nothing. The steps make some of these checks too, before anything moves (`folder.py`,
`limits.py`, `rights.py`).
"""

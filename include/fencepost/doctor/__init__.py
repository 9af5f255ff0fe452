"""What would make a run fail or lose its guarantee, and what to do: checks that change nothing, each a small function.

The steps call the cheap ones before anything is planned; `fencepost doctor` calls all of them.
"""

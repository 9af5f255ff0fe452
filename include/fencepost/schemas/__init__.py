"""Handles a pipeline's schemas in its registry: a plan freezes them, a write looks them up or registers them, and a
report shows them.

Only the steps, the doctor and the command line use this package. Executors never contact a registry.
"""

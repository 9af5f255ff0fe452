"""A pipeline's schemas in its registry: what a plan freezes, what a write looks up or registers, and a report for a person.

Only the steps, the doctor and the command line use it. Executors never contact a registry.
"""

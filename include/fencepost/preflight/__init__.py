"""The checks of a step before it changes anything: transform and suite, rights, the broker's limits, the source's retention.

The doctor runs the same checks and more. A check changes nothing.
"""

"""What a step checks before anything moves: transform and suite, rights, the broker's limits, the source's retention.

The doctor asks the same checks and more, for a person. A check asks, and changes nothing.
"""

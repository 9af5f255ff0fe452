"""Shows what a run would do with records, and what past runs did with them: trial, judge, suggest, diff, trace. It
changes nothing.
"""

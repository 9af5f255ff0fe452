"""Judges a batch: what its suite finds in the records, the gate and the report.

checks.py          results of checks, as values
rules.py           rules of severity quarantine, as the write step applies them
prepare.py         a declared expectation, checked against the columns and in their units
columns.py         the batch as its expectations see it
refusal.py         why an expectation cannot be asked of these columns
sql.py             what a suite's own SQL may be
overflow.py        a regex that overflows Java's stack
gathering.py       what they ask of the records, in one aggregation
judging.py         the door to Great Expectations, which decides by what was gathered
loading.py         its import, without what no verdict needs
empty.py           what expectations say about a batch without records
history.py         is a batch like those published before it?
evaluation.py      evaluates a suite on a batch
samples.py         unexpected records as a report shows them
quarantine.py      judges what a batch sent to quarantine: is all of it there, is it too much
gate.py            the decision, a pure function
report.py          the content of a report, and its order
report_html.py     the report as one HTML file, which needs no network
report_text.py     the verdict in a few lines
report_files.py    report files, each written whole or not at all
"""

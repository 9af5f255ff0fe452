"""Judges a batch. The package has the evaluation of the suite on the records, the gate and the report.

checks.py          results of checks, as values
rules.py           rules of severity quarantine, as the write step applies them
prepare.py         a declared expectation, checked against the columns and in their units
columns.py         the batch as its expectations see it
refusal.py         why an expectation cannot be evaluated on these columns
sql.py             which SQL a suite may have
overflow.py        finds the regex that overflows Java's stack
gathering.py       gathers what expectations need from the records, in one aggregation
judging.py         the only module that calls Great Expectations, which decides by what was gathered
loading.py         imports Great Expectations without the parts that no verdict needs
empty.py           what expectations say about a batch without records
empty_sources.py   did each source give records, for sources that have to
history.py         is a batch like those published before it?
evaluation.py      evaluates a suite on a batch
samples.py         unexpected records as a report shows them
quarantine.py      judges a batch's quarantined records: are all of them there, are there too many
gate.py            the decision, a pure function
report.py          the content of a report, and its order
report_html.py     the report as one HTML file, which needs no network
report_text.py     the verdict in a few lines
report_files.py    report files, each written whole or not at all
"""

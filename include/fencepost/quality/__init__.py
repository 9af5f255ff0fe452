"""Judges a batch: the suite a pipeline declares, the engines that evaluate it, the gate and the report.

suite.py           the declared suite: no Great Expectations, no Spark
arguments.py       what each type may be asked, checked when the suite is loaded
checks.py          results of checks, as values
catalogue.py       expectation types proven to give one answer on pandas and on Spark
rules.py           rules of severity quarantine, as the write step applies them
prepare.py         turns a declared expectation into a question for each engine
columns.py         the batch as Great Expectations sees it, the same for both engines
engines.py         the door to Great Expectations, with engine_metrics.py
engine_metrics.py  metrics of Great Expectations that we redefine
empty.py           what expectations say about a batch without records
history.py         is a batch like those published before it?
evaluation.py      evaluates a suite on a batch
samples.py         unexpected records as a report shows them
quarantine.py      judges what a batch sent to quarantine: is all of it there, is it too much
gate.py            the decision, a pure function
report.py          the content of a report, and its order
report_html.py     the report as one HTML file, which needs no network
report_text.py     the verdict in a few lines
report_files.py    report files, each written whole or not at all at all
"""

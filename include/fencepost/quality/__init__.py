"""Judging a batch: the suite a pipeline declares, the engines that evaluate it, the gate and the report.

suite.py           what is declared               no Great Expectations, no Spark
checks.py          what was found, as values
catalogue.py       expectation types proven to give one answer on pandas and on Spark
rules.py           rules of severity quarantine, as the write step applies them
prepare.py         what each engine is asked of a declared expectation
columns.py         the batch as Great Expectations sees it, the same for both engines
engines.py         the door to Great Expectations, with engine_metrics.py
engine_metrics.py  metrics of its that we define anew
empty.py           what expectations say of a batch without records
history.py         is a batch like those published before it
evaluation.py      a frame and a suite in, an evaluation out
samples.py         unexpected records as a report shows them
quarantine.py      what a batch sent to quarantine: is it all there, is it too much
gate.py            the decision, a pure function
report.py          what a report holds, and in which order
report_html.py     it as one HTML file, which needs no network
report_text.py     the verdict in a few lines
report_files.py    where reports lie, each whole or not at all
"""

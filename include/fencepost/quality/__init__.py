"""Judging a batch: the suite a pipeline declares, the engines that evaluate it, the gate and the report.

suite.py       what is declared               no Great Expectations, no Spark
checks.py      what was found, as values
catalogue.py   expectation types proven to give one answer on pandas and on Spark
columns.py     the batch as Great Expectations sees it, the same for both engines
engines.py     the one place that imports Great Expectations
evaluation.py  a frame and a suite in, an evaluation out
gate.py        the decision, a pure function
report.py      HTML, JSON and a few lines for a terminal
"""

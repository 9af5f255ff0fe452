"""What a pipeline may ask about its records.

declared.py     a suite as declared, checked
catalogue.py    the types of expectations: arguments and columns of each, and what Spark evaluates for it
arguments.py    the arguments of each type
conditions.py   whether a single record fails a type, as a Spark expression
numbers.py      numbers exactly as they are written
regexes.py      finds regexes that are wrong, or match everything or nothing
grid.py         the values of integers, decimals, days and times
figures.py      the figures that a type draws from a column, as Spark aggregates

This package does not import Great Expectations. The package imports Spark only to build an expression.
"""

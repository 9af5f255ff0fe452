"""What a pipeline may ask of its records.

declared.py     a suite as declared, checked
catalogue.py    the types of expectations: arguments and columns of each, and what Spark is asked for it
arguments.py    the arguments of each type
conditions.py   what a type says of a single record, as a Spark expression
numbers.py      numbers as they are written
regexes.py      regexes that are wrong, or say nothing
grid.py         the values of integers, decimals, days and times
figures.py      what a type draws from a column, as Spark aggregates

Nothing here imports Great Expectations, or Spark before it is asked for an expression.
"""

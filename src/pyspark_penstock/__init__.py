"""Topics as DataFrames: the only place with PySpark."""

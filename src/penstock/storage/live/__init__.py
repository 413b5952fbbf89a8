"""Reading the logs of a running broker, or a copy of them, from beside it: Penstock's or Kafka's.

Nothing here writes, locks, repairs or maps a file: the broker goes on as if nobody read. What it does meanwhile (append, roll,
compact, delete, truncate) is met by looking again; what is gone is said.
"""

"""Looking at the files of a log without opening it: what they hold, and what is wrong with them.

Nothing here maps, locks, creates or changes a file, but for `mend`, which does what its name says. Memory does not grow
with the size of a file. Who may call: tools, and jobs that look after directories; who calls keeps writers away, or says
that the directory is live.
"""

"""The event bus of a process, and the audit log of all processes.

One total order, hash-chained and verifiable; a stream resumes by cursor with no gap and no repeat.
"""

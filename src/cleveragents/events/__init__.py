"""The event bus of a process, and the audit log of all processes.

The log is one total order, hash-chained and verifiable; a stream resumes by cursor without gaps or repeats.
"""

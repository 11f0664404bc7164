"""Apply: merge a result into the user's files atomically, and undo it.

A journal in the database survives a crash; the next start completes or undoes each open entry.
"""

"""Apply: merges a result into the user's files, all or nothing, and undoes it.

A journal in the database survives a crash; the next start completes or undoes what it finds there.
"""

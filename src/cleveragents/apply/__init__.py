"""Apply: merge a result into the user's files atomically, and undo it.

`applier` merges. `preparation` stages, journals and ends an apply. `moves` changes the user's files, with the
system calls in `exchange`. `recovery` ends an interrupted apply, and `push` applies to a git remote.
A journal in the database survives a crash; the next start completes or undoes each open entry.
"""

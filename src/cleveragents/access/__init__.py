"""Users, roles, tokens, projects and trust.

Decides which principal has which role in which project, and which files of a repository are trusted, by
content. It decides nothing about plans.
"""

"""Users, roles, tokens, projects and trust.

Decides nothing about plans: it says which principal has which role in which project, and which files of a
repository its user trusts, by content.
"""

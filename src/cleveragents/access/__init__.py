"""Users, roles, tokens, projects and trust.

The package stores the role of each user in each project, and the trusted contents of repository files.
"""

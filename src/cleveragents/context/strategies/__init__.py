"""Context strategies, one per file.

Each module defines `make(ground) -> ContextStrategy`. A strategy with optional requirements also defines
`offered`.
"""

"""Strategies that find context, one per file.

Each module offers `make(ground) -> ContextStrategy`. One whose libraries are not there says so by `offered`.
"""

"""What every request passes before a route sees it, each gate in a module of its own.

Plain ASGI, not Starlette's middleware for functions: that one holds streams up and loses cancellations. A
gate that refuses raises; `account` answers.
"""

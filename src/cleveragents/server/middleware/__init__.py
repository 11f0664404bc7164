"""What every request passes before a route sees it.

Plain ASGI, not Starlette's middleware for functions: that one holds streams up and loses cancellations.
Middleware that refuses raises; `responses` answers.
"""

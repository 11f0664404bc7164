"""The middleware of every request.

All middleware is plain ASGI, because Starlette's function middleware buffers streams and loses cancellations.
Middleware raises an error to refuse a request; `responses` turns the error into a response.
"""

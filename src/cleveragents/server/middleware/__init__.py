"""The middleware of every request.

Plain ASGI, not Starlette's function middleware, which buffers streams and loses cancellations. Middleware
raises to refuse a request; `responses` turns the error into a response.
"""

"""The one interface of the product: `Client`, its two implementations, requests and views.

The CLI, the server's routes and the protocols call a client. One module per group of operations (`jobs`, …)
holds its views, its protocol, and both implementations; `plans` and `conversations` are packages with the
modules `client`, `local` and `http`. The package does not print or render anything.
"""

"""The one interface of the product to its surfaces: requests, views, access and actions.

The CLI, the server and the protocols use these functions; none of them prints or speaks HTTP.
"""

"""Plans in the API: views of plans, and the actions that a person can take on them.

`client` is the protocol, `local` and `http` implement it. `responses` holds the actions, and
`available_actions` tells which of them a plan allows. A new action needs a method in `client`, `local` and
`http`, a function in `responses`, an entry in `possible_actions`, a route in `server.routes.plan_actions` and
a command in `cli.plan.group`. Then regenerate `async_client.pyi` (`python -m tools.async_stub`).
"""

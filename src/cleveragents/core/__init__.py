"""Values and rules that every feature shares: errors, clock, ids, JSON values, policy, events, cancellation.

Nothing here does I/O or imports another feature.
"""

"""Values and rules shared by all features: errors, clock, ids, JSON values, policy, events, cancellation.

Nothing here does I/O or imports another feature.
"""

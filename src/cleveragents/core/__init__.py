"""Values and rules shared by all features: errors, clock, ids, JSON values, policy, events, cancellation.

The package does no I/O and imports no other feature.
"""

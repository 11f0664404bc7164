"""Temporal as the engine of shared job queues."""

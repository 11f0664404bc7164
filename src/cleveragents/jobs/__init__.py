"""Durable jobs: one owner at a time by lease and fence, heartbeats, recovery and cancellation."""

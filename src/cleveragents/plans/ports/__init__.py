"""The ports of plans: stores and sources that have more than one implementation."""

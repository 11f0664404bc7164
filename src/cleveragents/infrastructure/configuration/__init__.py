"""Configuration: what can be set, who set it, and what holds."""

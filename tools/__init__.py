"""Scripts for contributors to CleverAgents. They are not installed."""

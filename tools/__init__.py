"""Scripts for people who work on CleverAgents. Nothing here is installed."""

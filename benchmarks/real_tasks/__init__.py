"""Tasks for a small, real model: ours beside aider and mini-swe-agent."""

"""Plans on git remotes: mirrors, sandboxes that any machine can build, and applies that push."""

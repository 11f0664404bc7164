"""Plans on git remotes: mirrors, sandboxes that any machine can make, applies that are pushes."""

"""Views of plans, and the actions that a person can take on them."""

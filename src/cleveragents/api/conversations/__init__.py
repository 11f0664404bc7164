"""Conversations: create, continue, fork and delete them, and send turns."""

"""Access to files and directories without following links, and copies of them."""

"""The messages that streams carry into graphs and out of them."""

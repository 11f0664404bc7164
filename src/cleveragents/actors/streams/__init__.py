"""The messages that streams pass to graphs and receive from them."""

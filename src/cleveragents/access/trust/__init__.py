"""Trusted config: files of a repository that take effect only once the user trusts them."""

"""`agents plan`: list, show, review, apply and correct plans."""

"""What all interfaces know of plans: accounts, requests and decisions, without a terminal or a browser."""

"""Jobs in processes of their own, which can be found and ended."""

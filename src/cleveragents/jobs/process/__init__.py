"""Jobs in separate processes, which can be found and killed."""

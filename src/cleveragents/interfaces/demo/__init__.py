"""What `agents demo` runs: real graphs as jobs on real worker processes, one cancelled, one killed."""

"""What a job runs in: processes that can be found again and ended."""

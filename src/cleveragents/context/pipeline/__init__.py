"""The steps from what strategies found to an answer within its budget."""

"""The steps from the findings of strategies to an answer within its budget."""

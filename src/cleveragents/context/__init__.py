"""ACMS, the context pipeline: finds the code relevant to a question.

The pipeline answers within its deadline and token budget even if every strategy fails, and reports the
outcome of each strategy.
"""

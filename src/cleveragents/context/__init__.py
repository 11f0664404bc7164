"""ACMS, the context pipeline: finds the code relevant to a question.

It answers within its deadline and token budget even if every strategy fails, and reports what each strategy
did.
"""

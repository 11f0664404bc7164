"""ACMS, the context pipeline: finds the code relevant to a question.

It answers within its deadline and its token budget even when every strategy fails, and says what each did.
"""

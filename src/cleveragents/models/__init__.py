"""Language models behind one port: providers, calls, budgets, prices, retries.

Each call reserves its worst case from the budget of the whole plan tree before it is made.
"""

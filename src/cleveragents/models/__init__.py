"""Language models behind one port: providers, calls, budgets, prices, retries.

A call is reserved at its worst case before it is made, across the whole tree of plans.
"""

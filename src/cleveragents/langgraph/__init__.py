"""Actor graphs on LangGraph. (The library of the same name is imported absolutely.)"""

"""Code, questions and answers: data and rules, no I/O."""

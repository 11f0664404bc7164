"""Conversations: durable sessions with an assistant about a repository.

A conversation (`session` on the command line) has numbered turns. A turn is a question of a person and the
answer of an actor. The actor reads the repository and can start plans; approving and applying stay with
people. A turn is stored before the model is called, and one turn runs at a time.
"""

"""Graph checkpoints in the database, each written under the fence of its job."""

"""Tool calls of a plan: allowed by the policy, checkpointed, executed and recorded once."""

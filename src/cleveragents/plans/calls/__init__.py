"""Tool calls of a plan: approved by the policy, checkpointed, executed and recorded once."""

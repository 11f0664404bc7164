"""What people and other programs touch."""

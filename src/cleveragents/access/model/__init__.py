"""Users, projects, resources and remotes: data and rules, no I/O."""

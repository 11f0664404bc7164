"""Language models: the catalogue, one file per provider, and what makes calls bearable."""

"""How far to trust a fit: importance sampling of its evidence, and draws of its hyper-parameters."""

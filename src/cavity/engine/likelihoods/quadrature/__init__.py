"""Integrals over one latent value, near machine precision at all scales."""

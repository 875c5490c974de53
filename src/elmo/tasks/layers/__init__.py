"""What task models are built of."""

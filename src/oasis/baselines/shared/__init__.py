"""What the rivals share: kernels, similarity, draws and sums."""

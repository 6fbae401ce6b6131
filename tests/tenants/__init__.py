"""The matrix of address spaces: what clients of three spaces with equal names do, in each way, and what they see."""

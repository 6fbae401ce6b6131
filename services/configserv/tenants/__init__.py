"""Address spaces: their users as feeds have them, and the remains of removed ones."""

"""The suite that a command works on: where it is, how it is reached, as which user."""

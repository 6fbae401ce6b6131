"""Ways to get each exit status of each command, by groups of commands."""

"""Child processes: started, watched, restarted, stopped."""

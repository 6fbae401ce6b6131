"""Reading, checking and changing configuration: in files, by a console, in a cluster."""

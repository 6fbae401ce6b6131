"""HTTP: `http11`, messages of clients by h11, with a client that blocks and one for event loops; a web server of our
own, and health and metrics of services by it."""

"""Types of the REST API `/api/v1` (docs/decisions/0041-console.md): the console serves them and describes them by
OpenAPI, the command line is a client of them. No sockets, no clock."""

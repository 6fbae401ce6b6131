"""Identity: principals of users, roles and credentials of processes, and what each may do (docs/identity.md)."""

"""Links to neighbouring routers of a mesh, as Qpid Dispatch 1.19 has them. `services.router.mesh` has the rules."""

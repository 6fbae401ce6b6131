"""Operations of the API, a module for each resource: `operations(parts)` returns them."""

"""Hashes of passwords, made once in a process: each costs 40 ms of processor time, and many tests have equal ones."""

from __future__ import annotations

import functools

from enmasse.identity.proofs.passwords import Hashes, hashed


@functools.cache
def hashes(password: str, *, random: bool = True) -> Hashes:
    """Return hashes of this password, as `hashed` makes them. `random`: it was generated, so a cheap one will do."""
    return hashed(password, random=random)

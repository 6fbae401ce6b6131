"""Proof: what a login has shown."""

from __future__ import annotations

from typing import NamedTuple

from enmasse.identity.principal import Principal


class Proof(NamedTuple):
    """The user of a login. `expires`: seconds since 1970 from which the proof counts no longer; None: it is a password,
    which counts until it is changed."""

    principal: Principal
    expires: int | None = None

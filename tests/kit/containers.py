"""Containers of python-qpid-proton that do not each load the system's certificates."""

from __future__ import annotations

import functools

from proton import _reactor


def share_tls() -> None:
    """Let all containers of this process share their default TLS domains.

    Each Container, and so each BlockingConnection, makes two domains, for which OpenSSL reads the system's
    certificates: 40 ms of processor time and more, with the interpreter locked. A test that sets credentials passes a
    domain of its own.
    """
    _reactor.SSLConfig = functools.cache(_reactor.SSLConfig)

"""Settings that every gateway has, and what they mean for its connections to the authentication service."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from enmasse.identity.processes.credentials import AnyCredential
from enmasse.identity.processes.process_certificates import Certificate
from enmasse.model.loopback import is_loopback
from enmasse.process import runner, settings
from enmasse.process.settings import host_port


class GatewaySettings(settings.RoutedSettings, frozen=True, kw_only=True):
    """Settings of a gateway."""

    authserv: settings.HostPort | None = None
    """The authentication service, which clients log in at as soon as there are users; None: every client may do
    everything."""
    logins: settings.HostPort | None = None
    """The listener for passwords of the authentication service, which needs `credential`; None: a connection to
    `authserv` for each login."""
    authserv_ca: str | None = None
    """File in PEM with the authority of its certificate; None: no TLS, on loopback only."""
    leave_within: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    """Seconds from SIGTERM in which it hands its clients on before it ends; 0: it ends at once, as after SIGINT."""


def tls_of(own: GatewaySettings, credential: AnyCredential | None, service: str) -> Callable[[], ssl.SSLContext | None]:
    """TLS towards the authentication service: by `authserv_ca`, or by the gateway's certificate. Raises process.Fatal
    if passwords would be sent in the clear."""
    if own.authserv is None:
        return lambda: None
    if own.authserv_ca is None and isinstance(credential, Certificate):
        return credential.tls
    where = f"{service} {own.name}"
    if own.authserv_ca is None:
        if not is_loopback(host_port(own.authserv)[0]):
            reason = "is not on loopback, and passwords are sent to it: give authserv_ca, or a certificate (credential)"
            raise runner.Fatal("service.setting.invalid", f"{where}: authserv: {own.authserv} {reason}")
        return lambda: None
    try:
        context = ssl.create_default_context(cafile=own.authserv_ca)
    except (OSError, ssl.SSLError) as error:
        reason = f"{own.authserv_ca}: {error}; correct the file"
        raise runner.Fatal("service.setting.invalid", f"{where}: authserv_ca: {reason}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return lambda: context


def logins_of(own: GatewaySettings, credential: AnyCredential | None, service: str) -> tuple[str, int] | None:
    """Return host and port where passwords are checked. Raises process.Fatal if they would be sent in the clear, or
    without a credential."""
    if own.logins is None:
        return None
    found = host_port(own.logins)
    if credential is None or not (isinstance(credential, Certificate) or is_loopback(found[0])):
        reason = "passwords are sent there: give a certificate (credential), or on loopback a secret"
        raise runner.Fatal("service.setting.invalid", f"{service} {own.name}: logins: {own.logins} {reason}")
    return found

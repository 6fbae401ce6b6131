"""Trouble with the certificates of a suite's listeners: found once a minute, and shown in the status."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from enmasse.logs import log
from enmasse.text import counted

if TYPE_CHECKING:
    from enmasse.network.tls import Followed

PERIOD: Final = 60.0
DAY: Final = 86400
SOON: Final = 14 * DAY
"""Seconds before the end of a certificate from which on that is trouble."""
REMEDY: Final = "Put a new one there: it is read without a restart"


class Certificates:
    """Files of the certificate, its key and the authority of clients' certificates; `changed` is called when `troubles`
    has."""

    def __init__(self, cert: Path, key: Path, client_ca: Path | None, changed: Callable[[], None]) -> None:
        self.troubles: list[str] = []
        """Sentences, each about a file."""
        self._files = str(cert), str(key), None if client_ca is None else str(client_ca)
        self._changed = changed
        self._followed: Followed | None = None

    async def watch(self, period: float = PERIOD) -> NoReturn:
        """Look until cancelled."""
        while True:
            found = await asyncio.to_thread(self._look)
            for line in found:
                if line not in self.troubles:
                    log.get().warning("tls.certificate.troubled", reason=line)
            if found != self.troubles:
                self.troubles = found
                self._changed()
            await asyncio.sleep(period)

    def _look(self) -> list[str]:
        from enmasse.network import tls  # its libraries take time and memory

        cert, key, ca = self._files
        if self._followed is None:
            try:
                self._followed = tls.server(cert, key, ca=ca)
            except OSError as error:  # changed since it was checked, at the start
                return [f"{cert}: cannot be used: {error}"]
        self._followed.current()
        ends = (ends_soon(file, at - time.time()) for file, at in tls.expiries(self._followed.files))
        return [*rejection(self._followed), *filter(None, ends)]


def rejection(followed: Followed) -> Iterable[str]:
    """Yield the sentence about files that cannot be used."""
    if followed.rejected:
        yield f"{', '.join(followed.files)}: cannot be used, so the former ones stay in use: {followed.rejected}"


def ends_soon(file: str, seconds: float) -> str:
    """Return a sentence about a certificate that is valid for `seconds` more; empty if that is long enough."""
    if seconds <= 0:
        return f"{file}: has expired, so clients refuse it. {REMEDY}"
    if seconds < SOON:
        return f"{file}: expires in {counted(int(seconds / DAY), 'day')}. {REMEDY}"
    return ""

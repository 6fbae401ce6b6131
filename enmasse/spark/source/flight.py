"""Ranges of the spool over Arrow Flight: for executors on machines that do not have its files.

The process that asks the receiver for offsets serves them, if the option `flightHost` is given. Connections have TLS
with a certificate, and requests a token, which are made when the server starts: executors get both with their tasks, as
they get the tasks, from Spark. What is sent are records as the segments have them, so the executor checks their sums.
"""

from __future__ import annotations

import datetime as dt
import hmac
import json
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pyarrow import flight

from enmasse.spark.spool.segment import RECORD, SpoolChunk, SpoolError, parsed, partition_folder, spool_chunks

NAME = "spool"
"""The host name in the certificate: executors trust this one certificate, whatever the server's address."""
VALID = dt.timedelta(days=3650)
"""A query may run for years; the certificate ends with the process."""
BACKDATED = dt.timedelta(days=1)
RECORDS = pa.schema([("first", pa.int64()), ("records", pa.large_binary())])
ATTEMPTS, PAUSE = 4, 0.5
"""Tries of one executor for one range, and seconds between them; then Spark runs the task elsewhere."""
PASSING = (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightInternalError)


class Endpoint(NamedTuple):
    """Server of a spool as executors get it: where it is, its certificate (PEM), and the token for requests."""

    location: str
    certificate: bytes
    token: str


def certificate() -> tuple[bytes, bytes]:
    """Return a new certificate for NAME, signed by itself, and its key, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    )
    made = builder.sign(key, hashes.SHA256())
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return made.public_bytes(serialization.Encoding.PEM), private


class SpoolServer(flight.FlightServerBase):
    """Serves the ranges of one spool, from its construction on."""

    def __init__(self, folder: Path, host: str, port: int = 0) -> None:
        """host: the name or address under which executors reach this machine. Raises OSError if it cannot listen."""
        made, key = certificate()
        self._folder, self._token = folder, secrets.token_urlsafe(32)
        super().__init__(f"grpc+tls://{host}:{port}", tls_certificates=[(made, key)])
        self.endpoint = Endpoint(f"grpc+tls://{host}:{self.port}", made, self._token)

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.GeneratorStream:
        """Send the records of a range. A request without the token gets FlightUnauthenticatedError."""
        try:
            wanted = json.loads(ticket.ticket)
            token, start, end = str(wanted["token"]), int(wanted["start"]), int(wanted["end"])
            partition = int(wanted["partition"])
        except (ValueError, TypeError, KeyError, RecursionError):
            token, start, end, partition = "", 0, 0, 0
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise flight.FlightUnauthenticatedError("the token of this query is missing")
        return flight.GeneratorStream(RECORDS, self._records(partition, start, end))

    def _records(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        try:
            for chunk in spool_chunks(partition_folder(self._folder, partition), start, end):
                begin, stop = chunk.begins[0] - RECORD.size, chunk.ends[-1]
                yield pa.record_batch([[chunk.first], [chunk.data[begin:stop]]], schema=RECORDS)
        except SpoolError as error:
            raise flight.FlightServerError(str(error)) from None


def fetched(endpoint: Endpoint, start: int, end: int, partition: int = 0) -> Iterator[SpoolChunk]:
    """Yield the records of a range from its server; a lost connection is tried again from where it was lost.

    Raises SpoolError if records are missing, if the server cannot be reached, or if it refuses.
    """
    expected, failures = start, 0
    while expected < end:
        try:
            for chunk in _stream(endpoint, expected, end, partition):
                expected += len(chunk.begins)
                yield chunk
            if expected < end:
                raise SpoolError(
                    f"{endpoint.location}: record {expected} of the range {start}..{end} was not sent whole"
                )
        except PASSING as error:
            failures += 1
            if failures == ATTEMPTS:
                raise SpoolError(
                    f"{endpoint.location}: the range {start}..{end} of the spool cannot be read ({_reason(error)}). "
                    'Executors must reach the driver there: see the options "flightHost" and "flightPort"'
                ) from None
            time.sleep(PAUSE)
        except (flight.FlightError, pa.ArrowException) as error:
            raise SpoolError(f"{endpoint.location}: {_reason(error)}") from None


def _stream(endpoint: Endpoint, start: int, end: int, partition: int) -> Iterator[SpoolChunk]:
    """Yield what comes over one connection, up to the first record that is not the next one or is damaged."""
    wanted = json.dumps({"token": endpoint.token, "start": start, "end": end, "partition": partition})
    with flight.FlightClient(endpoint.location, tls_root_certs=endpoint.certificate, override_hostname=NAME) as client:
        for part in client.do_get(flight.Ticket(wanted.encode())):
            data = part.data.column("records")[0].as_py()
            if part.data.column("first")[0].as_py() != start:
                return
            chunk, passed, used = parsed(data, 0, start, start, end)
            if chunk.begins:
                yield chunk
            if used != len(data):
                return
            start += passed


def _reason(error: Exception) -> str:
    """Return the first sentence of an error of gRPC, without its internals."""
    return str(error).splitlines()[0].partition(". gRPC client debug context")[0].partition(". Detail:")[0]

"""Options of `send`, `request` and `reply` for the fields of a message."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from enmasse.cli.common import Seconds
from enmasse.identity.annotations import DELIVERY_DELAY

rate_option = click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N",
                           help="At most N messages a second.")  # fmt: skip
"""The pace of `send` and `publish`."""
_TEXTS = {
    "id": ("message_id", "ID", "Message-id."),
    "subject": ("subject", "TEXT", "Subject."),
    "to": ("to", "ADDRESS", "The property `to`; the message is sent to ADDRESS nevertheless."),
    "reply-to": ("reply_to", "ADDRESS", "Address for replies."),
    "correlation-id": ("correlation_id", "ID", "Correlation-id."),
    "content-type": ("content_type", "TYPE", "Content type of the body, such as application/json."),
}


def message_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the function gets them as `fields`: those of `Message` that were given."""

    @functools.wraps(function)
    def wrapped(
        *args: Any, ttl: float | None, delay: float | None, priority: int | None, properties: tuple[str, ...],
        non_durable: bool, **others: Any,
    ) -> Any:  # fmt: skip
        fields = {own: others.pop(own) for own, _, _ in _TEXTS.values()} | {"priority": priority}
        fields = {own: value for own, value in fields.items() if value is not None}
        if not fields.get("content_type", "").isascii():
            raise click.BadParameter("it has characters beyond ASCII.", param_hint="--content-type")
        if ttl is not None:
            fields["ttl"] = max(1, int(ttl * 1000))
        if delay is not None:
            fields["annotations"] = {DELIVERY_DELAY: int(delay * 1000)}
        if properties:
            fields["application_properties"] = _properties(properties)
        if non_durable:
            fields["durable"] = False
        return function(*args, fields=fields, **others)

    options = [
        click.option(f"--{name}", own, metavar=metavar, help=text) for name, (own, metavar, text) in _TEXTS.items()
    ]
    options += [
        click.option("--priority", type=click.IntRange(0, 9), metavar="N", help="Priority: 0 to 9, usually 4."),
        click.option("--ttl", type=Seconds(above_zero=True), metavar="SECONDS", help="Time to live."),
        click.option("--delay", type=Seconds(), metavar="SECONDS",
                     help="The broker delivers the message after SECONDS (queues and topics)."),
        click.option("--property", "properties", multiple=True, metavar="KEY=VALUE", help="An application property."),
        click.option("--non-durable", is_flag=True, help="Messages need not survive the loss of a broker."),
    ]  # fmt: skip
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


def _properties(texts: tuple[str, ...]) -> dict[str, Any]:
    from enmasse.cli.output.show import properties_from

    try:
        return properties_from(texts)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--property") from None

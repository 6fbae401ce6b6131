"""The bodies of `$mqtt/sessions` as they are on the wire."""

import msgspec
import pytest

from enmasse.model import sessions as wire


def test_changes_of_packet_ids_are_arrays() -> None:
    body = b'{"changes":[["c",3,"in",7,"dup"],["c",3,"out",8,"00ff","$sub/b/c"],["c",3,"out-",8]]}'
    changes = msgspec.json.decode(body, type=wire.Packets).changes
    assert changes == [
        wire.PacketChange("c", 3, "in", 7, "dup"),
        wire.PacketChange("c", 3, "out", 8, "00ff", "$sub/b/c"),
        wire.PacketChange("c", 3, "out-", 8),
    ]
    assert msgspec.json.encode(changes[0]) == b'["c",3,"in",7,"dup","","",false]'


def test_a_reply_to_open_names_what_is_under_way() -> None:
    reply = wire.OpenReply(
        epoch=4, present=True, received=[(1, "dup")], sent=[wire.Outgoing(2, 2, "ff", "$sub/b/c", "released")]
    )
    assert msgspec.json.decode(msgspec.json.encode(reply), type=wire.OpenReply) == reply
    assert b'"sent":[[2,2,"ff","$sub/b/c","released",""]]' in msgspec.json.encode(reply)


@pytest.mark.parametrize(
    "body",
    [
        '{"changes":[["c",3,"in",0,"dup"]]}',
        '{"changes":[["c",3,"in",65536,"dup"]]}',
        '{"changes":[["c",3,"odd",1]]}',
        '{"changes":[["",3,"in",1]]}',
        '{"changes":[["c",-1,"in",1]]}',
    ],
)
def test_what_no_gateway_may_say_is_refused(body: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=wire.Packets)

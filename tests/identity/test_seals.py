"""Seals of messages: read by holders of the key only, for the message they were made for."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.identity.authors import Author
from enmasse.identity.seals import KEY_SIZE, Seal, new_key

KEY = bytes(range(KEY_SIZE))
SEAL = Seal(KEY)
AUTHORS = st.builds(
    Author,
    st.text(min_size=1).filter(lambda name: not name.startswith("!!")),
    st.none() | st.tuples() | st.tuples(st.text(), st.text()),
    st.sampled_from(["default", "team-a"]),
)
ALICE = Author("alice")


@given(AUTHORS, st.text(), st.binary())
def test_a_seal_states_the_author(author: Author, to: str, body: bytes) -> None:
    assert SEAL.read(SEAL.make(author, to, body), to, body) == author


def test_a_seal_states_no_author_under_another_key_topic_or_body() -> None:
    seal = SEAL.make(ALICE, "news/1", b"body")
    assert b"alice" not in seal
    assert Seal(new_key()).read(seal, "news/1", b"body") is None
    assert SEAL.read(seal, "news/2", b"body") is None
    assert SEAL.read(seal, "news/1", b"other") is None
    assert SEAL.read(seal, "news/1b", b"ody") is None


@given(st.binary(max_size=200))
def test_arbitrary_bytes_state_no_author(seal: bytes) -> None:
    assert SEAL.read(seal, "news/1", b"body") is None


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_seal_states_no_author(at: int, change: int) -> None:
    seal = bytearray(SEAL.make(ALICE, "news/1", b"body"))
    seal[at % len(seal)] ^= change
    assert SEAL.read(bytes(seal), "news/1", b"body") is None


def test_a_seal_of_the_default_space_is_as_before_address_spaces() -> None:
    encoded = msgspec.msgpack.encode(("alice", ("staff",)))
    earlier = SEAL._cipher.encrypt(encoded, [b"news/1", b"body"])
    assert SEAL.make(Author("alice", ("staff",)), "news/1", b"body") == earlier
    assert SEAL.read(earlier, "news/1", b"body") == Author("alice", ("staff",))


def test_keys_are_random_and_of_one_size() -> None:
    assert len(new_key()) == KEY_SIZE
    assert new_key() != new_key()
    for key in (b"", b"x" * 32):
        with pytest.raises(ValueError, match="64"):
            Seal(key)

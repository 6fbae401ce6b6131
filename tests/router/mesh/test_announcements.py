"""Addresses with receivers: what is told of the own ones, and what follows from updates of others."""

from __future__ import annotations

import random

from services.router.mesh.announcements import NO_CHANGE, AddressChange, OwnAddresses, RemoteAddresses
from services.router.mesh.control_messages import AddressUpdate, Announced, Treatment

CLOSEST, BALANCED = Treatment.CLOSEST, Treatment.BALANCED
A, B, C = Announced("M0a", BALANCED), Announced("M0b", CLOSEST), Announced("M0c", Treatment.MULTICAST_FLOOD)


def add(own: OwnAddresses, each: Announced) -> None:
    assert each.treatment is not None
    own.add(each.key, each.treatment)


def test_changes_are_told_together_with_the_next_number() -> None:
    own = OwnAddresses()
    add(own, A)
    add(own, B)
    assert own.changes("r1") == AddressUpdate("r1", 1, (A, B))
    assert own.changes("r1") is None
    own.remove("M0a")
    add(own, C)
    assert own.changes("r1") == AddressUpdate("r1", 2, (C,), ("M0a",))
    assert own.everything("r1") == AddressUpdate("r1", 2, (B, C), absolute=True)


def test_what_has_not_been_told_is_not_in_the_absolute_update() -> None:
    own = OwnAddresses()
    add(own, A)
    own.changes("r1")
    add(own, B)
    own.remove("M0a")
    assert own.everything("r1") == AddressUpdate("r1", 1, (A,), absolute=True)


def test_address_that_comes_and_goes_at_once_is_not_told() -> None:
    own = OwnAddresses()
    add(own, A)
    own.remove("M0a")
    own.remove("M0b")
    assert own.changes("r1") is None
    assert own.seq == 0


def test_another_treatment_is_told() -> None:
    own = OwnAddresses()
    own.add("M0a", BALANCED)
    own.changes("r1")
    own.add("M0a", CLOSEST)
    assert own.changes("r1") == AddressUpdate("r1", 2, (Announced("M0a", CLOSEST),))


def test_differential_updates_are_applied_in_turn() -> None:
    remote = RemoteAddresses()
    assert remote.apply(AddressUpdate("r1", 1, (A, B))) == AddressChange((A, B))
    assert remote.apply(AddressUpdate("r1", 2, (C,), ("M0a", "M0x"))) == AddressChange((C,), ("M0a",))
    assert remote.addresses == {"M0b": CLOSEST, "M0c": Treatment.MULTICAST_FLOOD}


def test_repeated_and_overtaken_updates_have_no_effect() -> None:
    remote = RemoteAddresses()
    remote.apply(AddressUpdate("r1", 1, (A,)))
    remote.apply(AddressUpdate("r1", 2, (), ("M0a",)))
    assert remote.apply(AddressUpdate("r1", 1, (A,))) is NO_CHANGE
    assert remote.apply(AddressUpdate("r1", 1, (A,), absolute=True)) is NO_CHANGE
    assert remote.addresses == {}


def test_gap_is_told_and_an_absolute_update_closes_it() -> None:
    remote = RemoteAddresses()
    remote.apply(AddressUpdate("r1", 1, (A,)))
    assert remote.apply(AddressUpdate("r1", 3, (C,))) is None
    assert remote.addresses == {"M0a": BALANCED}
    assert remote.apply(AddressUpdate("r1", 3, (B, C), absolute=True)) == AddressChange((B, C), ("M0a",))
    assert remote.apply(AddressUpdate("r1", 4, (A,))) == AddressChange((A,))


def test_absolute_update_tells_another_treatment() -> None:
    remote = RemoteAddresses()
    remote.apply(AddressUpdate("r1", 1, (A, B)))
    changed = Announced("M0a", CLOSEST)
    assert remote.apply(AddressUpdate("r1", 5, (changed, B), absolute=True)) == AddressChange((changed,))


def test_others_know_what_has_been_told_whatever_is_lost() -> None:
    rng = random.Random(5)
    own, remote = OwnAddresses(), RemoteAddresses()
    followed: dict[str, Treatment | None] = {}
    for _ in range(3000):
        key = f"M0{rng.randint(0, 9)}"
        if rng.random() < 0.5:
            own.add(key, rng.choice((CLOSEST, BALANCED)))
        else:
            own.remove(key)
        update = own.changes("r1") if rng.random() < 0.6 else None
        if update is None or rng.random() < 0.3:
            continue
        change = remote.apply(update)
        if change is None:
            change = remote.apply(own.everything("r1"))
        assert change is not None
        for gone in change.removed:
            del followed[gone]
        followed.update(change.added)
        assert remote.addresses == followed == dict(own.everything("r1").added)

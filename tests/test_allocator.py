"""Large blocks of a process that carries no messages leave nothing on its heap."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
from enmasse.process import allocator

def heap():
    lines = [line.split() for line in open("/proc/self/maps") if line.rstrip().endswith("[heap]")]
    low, high = lines[0][0].split("-")
    return int(high, 16) - int(low, 16)

{prepare}
bytes(8 << 20)  # freed at once: from now on glibc takes blocks of up to this size from the heap, if it is left alone
before = heap()
block = bytes(4 << 20)
print(heap() - before)
"""


@pytest.mark.parametrize(("prepare", "grows"), [("", True), ("allocator.keep_little()", False)])
def test_large_block_is_apart_from_the_heap(prepare: str, grows: bool) -> None:
    command = [sys.executable, "-c", PROGRAM.format(prepare=prepare)]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert (grown > 0) == grows

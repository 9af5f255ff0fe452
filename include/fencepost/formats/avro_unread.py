"""Skips a value of a type that contains itself. Spark has no such type, but a reader's schema may leave such a field out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fencepost.formats.avro_columns import Read
from fencepost.formats.avro_plain import (
    check_block,
    more_than_left,
    read_block,
    reads_index,
    reads_plain,
    reads_text,
    takes_no_bytes,
)
from fencepost.formats.avro_schema import AvroType, contains_itself
from fencepost.formats.framing import Malformed

# Reads the beginning of a value, and appends to the list the steps that read the rest, the last first. Returns where
# the beginning ends.
Step = Callable[[bytes, int, "list[Step]"], int]


class SkippedValue:
    """A `Read` that checks a value of its type and returns None.

    A value may be nested as deep as it has bytes, so the code uses a list of steps instead of nested calls.
    `count_empty` is called with the number of an array's items that take no bytes.
    """

    def __init__(self, kind: AvroType, where: str, count_empty: Callable[[int, str], None]) -> None:
        self._kind, self._where, self._count_empty = kind, where, count_empty
        self._steps: dict[int, Step] = {}  # by the identity of a type
        self._begun: dict[int, int] = {}  # offset where the last record of a type began

    def __call__(self, data: bytes, at: int) -> tuple[None, int]:
        self._begun.clear()
        left = [self._step(self._kind)]
        while left:
            at = left.pop()(data, at, left)
        return None, at

    def _step(self, kind: AvroType) -> Step:
        kind = kind.whole
        if id(kind) not in self._steps:
            self._steps[id(kind)] = self._made(kind)
        return self._steps[id(kind)]

    def _made(self, kind: AvroType) -> Step:
        if kind.kind == "record":
            return self._record(kind)
        if kind.kind == "union":
            return self._union(kind)
        if kind.items is not None:
            return self._items(kind)
        if kind.kind == "enum":
            return _past(reads_index(len(kind.symbols), "symbol", self._where))
        return _past(reads_plain(kind, None, self._where))

    def _record(self, kind: AvroType) -> Step:
        may_lack_an_end = contains_itself(kind)

        def step(data: bytes, at: int, left: list[Step]) -> int:
            if may_lack_an_end:
                if self._begun.get(id(kind)) == at:
                    raise Malformed(f"{self._where}: {kind.describe()} contains itself without an end")
                self._begun[id(kind)] = at
            left += [self._step(one.type) for one in reversed(kind.fields)]
            return at

        return step

    def _union(self, kind: AvroType) -> Step:
        branch = reads_index(len(kind.branches), "type", self._where, "a union of ")

        def step(data: bytes, at: int, left: list[Step]) -> int:
            number, at = branch(data, at)
            left.append(self._step(kind.branches[number]))
            return at

        return step

    def _items(self, kind: AvroType) -> Step:
        assert kind.items is not None
        items, is_map = kind.items, kind.kind == "map"
        empty, name_of = not is_map and takes_no_bytes(items), reads_text(self._where)

        def begin(data: bytes, at: int, left: list[Step]) -> int:
            names = set[str]()

            def block(data: bytes, at: int, left: list[Step]) -> int:
                count, end, at = read_block(data, at, self._where)
                if not count:
                    return at
                if empty:
                    self._count_empty(count, self._where)
                    count = 0
                elif count > len(data) - at:
                    raise more_than_left(count, len(data) - at, self._where)
                left.append(partial(rest, count, end))
                return at

            def rest(count: int, end: int | None, data: bytes, at: int, left: list[Step]) -> int:
                if not count:
                    check_block(end, at, self._where)
                    left.append(block)
                    return at
                left += [partial(rest, count - 1, end), self._step(items)]
                if is_map:
                    name, at = name_of(data, at)
                    if name in names:
                        raise Malformed(f"{self._where}: two entries of one name")
                    names.add(name)
                return at

            return block(data, at, left)

        return begin


def _past(read: Read) -> Step:
    """Returns a step that skips a value which contains no other value."""
    return lambda data, at, left: read(data, at)[1]

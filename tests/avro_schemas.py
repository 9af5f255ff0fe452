"""Schemas and records made up by chance, with what fastavro makes of them: an independent writer and reader."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Json = Any


def written(schema: Json, value: Any) -> bytes:
    """The value as fastavro writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed(schema), value)
    return out.getvalue()


def read(payload: bytes, writer: Json, reader: Json | None = None) -> Any:
    """The value as fastavro reads it. For a default it gives the schema's JSON as it is, so those of `ADDED` are put in here."""
    found = fastavro.schemaless_reader(io.BytesIO(payload), parsed(writer), None if reader is None else parsed(reader))
    for one in reader["fields"] if reader is not None else ():
        for kind, _, value in ADDED if one["name"].startswith("added") else ():
            if one["type"] == kind:
                found[one["name"]] = value
    return found


def parsed(schema: Json) -> Any:
    """A copy that fastavro may mark as parsed."""
    return fastavro.parse_schema(json.loads(json.dumps(schema)))


def as_spark_has_it(kind: Json, value: Any) -> Any:
    """What a Spark column of this type holds, as Arrow gives it to Python, for a value as fastavro reads it."""
    if isinstance(kind, list):
        others = [branch for branch in kind if branch != "null"]
        if value is None:
            return None
        if len(others) == 1:
            return as_spark_has_it(others[0], value)
        return {member(b): as_spark_has_it(b, value) if branch_of(value, others) is b else None for b in others}
    if isinstance(kind, str):
        return value
    logical = kind.get("logicalType")
    if logical in ("time-millis", "time-micros"):
        micros = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        return micros // 1000 if logical == "time-millis" else micros
    if logical == "uuid" and isinstance(value, UUID):
        return str(value)
    name = kind["type"]
    if name == "record":
        return {f["name"]: as_spark_has_it(f["type"], value[f["name"]]) for f in kind["fields"]}
    if name == "array":
        return [as_spark_has_it(kind["items"], one) for one in value]
    if name == "map":
        return sorted((key, as_spark_has_it(kind["values"], one)) for key, one in value.items())
    return value


def as_arrow_gives_it(kind: Json, value: Any) -> Any:
    """A value of an Arrow table, with maps in order and times in UTC, to compare with `as_spark_has_it`."""
    if value is None or isinstance(kind, str):
        return value
    if isinstance(kind, list):
        others = [branch for branch in kind if branch != "null"]
        if len(others) == 1:
            return as_arrow_gives_it(others[0], value)
        return {member(b): as_arrow_gives_it(b, value[member(b)]) for b in others}
    if kind["type"] == "record":
        return {f["name"]: as_arrow_gives_it(f["type"], value[f["name"]]) for f in kind["fields"]}
    if kind["type"] == "array":
        return [as_arrow_gives_it(kind["items"], one) for one in value]
    if kind["type"] == "map":
        return sorted((key, as_arrow_gives_it(kind["values"], one)) for key, one in value)
    return value


def member(branch: Json) -> str:
    """The column of a union's type."""
    name = branch if isinstance(branch, str) else branch.get("name", branch["type"])
    return f"member_{name}"


PYTHON = {"int": int, "long": int, "string": str, "boolean": bool, "double": float, "bytes": bytes, "array": list}


def branch_of(value: Any, branches: list[Json]) -> Json:
    """The type of a union that a value is of; the unions made here tell by the value's Python type."""
    for branch in branches:
        name = branch if isinstance(branch, str) else branch["type"]
        if type(value) is PYTHON.get(name):
            return branch
    raise AssertionError(value)


class Chance:
    """Makes schemas and values of them from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._names = 0

    def name(self, what: str) -> str:
        """A name that no other type here has."""
        self._names += 1
        return f"{what}{self._names}"

    def record(self, depth: int = 3) -> Json:
        """A record of one to six fields."""
        number = self.random.randint(1, 6)
        fields = [{"name": f"f{i}", "type": self.type(depth - 1)} for i in range(number)]
        return {"type": "record", "name": self.name("R"), "fields": fields}

    def type(self, depth: int) -> Json:
        """Any type that Spark can hold."""
        simple = [self._plain, self._logical, self._named]
        nested: list[Callable[[int], Json]] = [self._array, self._map, self._nullable, self._union, self.record]
        if depth <= 0 or self.random.random() < 0.5:
            return self.random.choice(simple)()
        return self.random.choice(nested)(depth)

    def _plain(self) -> Json:
        return self.random.choice(["boolean", "int", "long", "float", "double", "bytes", "string"])

    def _logical(self) -> Json:
        precision = self.random.randint(1, 38)
        decimal = {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": precision,
            "scale": self.random.randint(0, precision),
        }
        return self.random.choice(
            [
                decimal,
                *({"type": "int", "logicalType": name} for name in ("date", "time-millis")),
                *({"type": "long", "logicalType": name} for name in ("time-micros", *TIMESTAMPS)),
                {"type": "string", "logicalType": "uuid"},
            ]
        )

    def _named(self) -> Json:
        if self.random.random() < 0.5:
            symbols = [f"S{i}" for i in range(self.random.randint(1, 4))]
            return {"type": "enum", "name": self.name("E"), "symbols": symbols}
        size = self.random.randint(1, 17)
        fixed = {"type": "fixed", "name": self.name("F"), "size": size}
        if self.random.random() < 0.5:
            precision = self.random.randint(1, max(1, min(38, int(2.4 * size - 1))))
            return {**fixed, "logicalType": "decimal", "precision": precision, "scale": precision // 2}
        return fixed

    def _array(self, depth: int) -> Json:
        return {"type": "array", "items": self.type(depth - 1)}

    def _map(self, depth: int) -> Json:
        return {"type": "map", "values": self.type(depth - 1)}

    def _nullable(self, depth: int) -> Json:
        inner = self.type(depth - 1)
        while isinstance(inner, list):
            inner = self.type(depth - 1)
        return ["null", inner] if self.random.random() < 0.7 else [inner, "null"]

    def _union(self, depth: int) -> Json:
        """Of types that fastavro tells apart: it takes the first that a value can be promoted to, before its own."""
        chance = self.random
        text, number = chance.choice(["string", "bytes"]), chance.choice(["long", "double"])
        branches = chance.sample([text, number, "boolean", {"type": "array", "items": "int"}], chance.randint(2, 4))
        return [*(["null"] if chance.random() < 0.5 else []), *branches]

    def value(self, kind: Json) -> Any:
        """A value of the type, as fastavro takes it."""
        chance = self.random
        if isinstance(kind, list):
            return self.value(chance.choice(kind))
        if isinstance(kind, str):
            return self._of(kind)
        logical, name = kind.get("logicalType"), kind["type"]
        if logical == "decimal":
            unscaled = chance.choice([0, 1, -1, 10 ** kind["precision"] - 1, chance.randrange(10 ** kind["precision"])])
            digits = tuple(int(digit) for digit in str(abs(unscaled)))  # arithmetic would round to 28 digits
            return Decimal((int(unscaled < 0), digits, -kind["scale"]))
        if logical == "date":
            return date(1, 1, 1) + timedelta(days=chance.randrange(3_652_058))
        if logical in ("time-millis", "time-micros"):
            step = 1000 if logical == "time-millis" else 1
            return (datetime.min + timedelta(microseconds=chance.randrange(86_400_000_000) // step * step)).time()  # noqa: DTZ901
        if logical in TIMESTAMPS:
            step = 1000 if logical.endswith("millis") else 1
            moment = EPOCH + timedelta(microseconds=chance.randrange(-(10**16), 10**16) // step * step)
            return moment.replace(tzinfo=None) if logical.startswith("local") else moment
        if logical == "uuid":
            return UUID(int=chance.getrandbits(128))
        if name == "record":
            return {f["name"]: self.value(f["type"]) for f in kind["fields"]}
        if name == "enum":
            return chance.choice(kind["symbols"])
        if name == "fixed":
            return chance.randbytes(kind["size"])
        several = range(chance.choice([0, 1, 1, 2, 5]))
        if name == "array":
            return [self.value(kind["items"]) for _ in several]
        return {self._of("string") + str(i): self.value(kind["values"]) for i in several}

    def _of(self, kind: str) -> Any:
        chance = self.random
        if kind == "null":
            return None
        if kind == "boolean":
            return chance.random() < 0.5
        if kind in ("int", "long"):
            bits = 31 if kind == "int" else 63
            return chance.choice([0, -1, 2**bits - 1, -(2**bits), chance.randrange(-(2**bits), 2**bits)])
        if kind == "float":
            return chance.choice([0.0, -1.5, 2.0**100, float("inf"), chance.randrange(1000) / 8])
        if kind == "double":
            return chance.choice([0.0, -1e308, 5e-324, chance.uniform(-1e6, 1e6)])
        if kind == "bytes":
            return chance.randbytes(chance.choice([0, 1, 7, 40]))
        return "".join(chance.choice("aé€😀\0\n{") for _ in range(chance.choice([0, 1, 5, 60])))

    def evolved(self, writer: Json) -> Json:
        """A reader's schema of a record that the specification says can read what the writer's wrote."""
        chance, fields = self.random, []
        for one in writer["fields"]:
            if chance.random() < 0.2:
                continue
            after = {**one, "type": self._widened(one["type"])}
            if chance.random() < 0.3:
                after |= {"name": f"new_{one['name']}", "aliases": [one["name"]]}
            fields.append(after)
        for number in range(chance.randint(0, 2)):
            kind, default, _ = chance.choice(ADDED)
            fields.append({"name": f"added{number}", "type": kind, "default": default})
        chance.shuffle(fields)
        return {**writer, "fields": fields or [{"name": "only", "type": "int", "default": 1}]}

    def _widened(self, kind: Json) -> Json:
        if isinstance(kind, str) and self.random.random() < 0.5:
            return {"int": "long", "float": "double", "string": "bytes"}.get(kind, kind)
        if not isinstance(kind, list) and self.random.random() < 0.3:
            return ["null", kind]
        return kind


TIMESTAMPS = ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros")
# Fields that a later schema adds: type, default, and the value that the default means.
ADDED: list[tuple[Json, Json, Any]] = [
    ("int", 7, 7),
    ("string", "é", "é"),
    (["null", "long"], None, None),
    ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
    ({"type": "map", "values": "boolean"}, {"k": True}, {"k": True}),
    ({"type": "long", "logicalType": "timestamp-millis"}, 1500, EPOCH + timedelta(milliseconds=1500)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u0004\u00d2", Decimal("12.34")),
]

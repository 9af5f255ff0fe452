"""Which columns of an Iceberg table take a transform's result, and what to do about the others."""

from __future__ import annotations

import pytest
from pyiceberg import types as i
from pyiceberg.schema import Schema
from pyspark.sql import types as t

from fencepost.outputs.iceberg.types import (
    column_differences,
    holds,
    missing_columns,
    new_partition_spec,
    new_schema,
    type_for,
    unsupported_columns,
)
from spark_types import columns, spark_type

EXACT = [
    ("tinyint", i.IntegerType(), [i.LongType()]),
    ("smallint", i.IntegerType(), [i.LongType()]),
    ("int", i.IntegerType(), [i.LongType()]),
    ("bigint", i.LongType(), []),
    ("float", i.FloatType(), [i.DoubleType()]),
    ("double", i.DoubleType(), []),
    ("boolean", i.BooleanType(), []),
    ("string", i.StringType(), []),
    ("binary", i.BinaryType(), []),
    ("date", i.DateType(), []),
    ("timestamp", i.TimestamptzType(), []),
    ("timestamp_ntz", i.TimestampType(), []),
    ("decimal(10,2)", i.DecimalType(10, 2), [i.DecimalType(11, 2), i.DecimalType(11, 3), i.DecimalType(38, 30)]),
]
ALL = [
    *(kind for _, kind, _ in EXACT),
    *(i.DecimalType(*both) for both in ((9, 2), (10, 1), (10, 3), (11, 3), (11, 2), (38, 30), (38, 31))),
    *(i.TimeType(), i.UUIDType(), i.FixedType(4), i.TimestampNanoType(), i.TimestamptzNanoType()),
]


@pytest.mark.parametrize(("kind", "made", "wider"), EXACT)
def test_a_column_takes_what_it_holds_exactly_and_nothing_else(
    kind: str, made: i.IcebergType, wider: list[i.IcebergType]
) -> None:
    assert type_for(spark_type(kind)) == made
    assert [one for one in ALL if holds(one, spark_type(kind))] == [one for one in ALL if one in (made, *wider)]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("void", "column c is of type void, which has no counterpart in Iceberg; cast it"),
        ("variant", "column c is of type variant, which has no counterpart in Iceberg; cast it"),
        ("time(6)", "column c is of type time(6), which has no counterpart in Iceberg; cast it"),
        (
            "interval day to second",
            "column c is of type interval day to second, which has no counterpart in Iceberg; cast it",
        ),
        ("array<void>", "column c is of type array<void>, which has no counterpart in Iceberg; cast it"),
        ("struct<a:map<string,void>>", "column c is of type struct<a:map<string,void>>, which has no counterpart"),
        ("map<int,string>", "column c has a map with keys of type int, which JSON cannot express; rename or cast it"),
        ("struct<a:int,A:int>", "columns a and A differ only in case, which Spark ignores; rename one"),
        ("array<struct<b:int,B:int>>", "columns b and B differ only in case, which Spark ignores; rename one"),
        ("map<string,struct<b:int,B:int>>", "columns b and B differ only in case, which Spark ignores; rename one"),
        ("struct<:int>", "column 'c' has the name '', which Iceberg's files cannot have; rename it"),
        ("struct<a.b:int,a:struct<b:int>>", "a column's name with a dot is also the path of a field in a struct"),
    ],
)
def test_a_type_without_counterpart_is_refused_by_name(kind: str, why: str) -> None:
    (found,) = unsupported_columns(columns(c=kind))
    assert found.startswith(why)


@pytest.mark.parametrize("name", ["fencepost_interval", "FENCEPOST_Revision"])
def test_reserved_names_are_refused(name: str) -> None:
    assert unsupported_columns(columns(**{name: "int"})) == [
        f"column {name} has a name that Fencepost uses in every table; rename it"
    ]


def test_names_that_differ_only_in_case_are_refused() -> None:
    assert unsupported_columns(columns(Name="int", name="int")) == [
        "columns Name and name differ only in case, which Spark ignores; rename one"
    ]
    table = new_schema(columns(Name="int"))
    assert column_differences("n.t", columns(name="int"), table, add=True) == [
        "columns Name and name differ only in case, which Spark ignores: rename one"
    ]
    nested = new_schema(columns(s="struct<Name:int>"))
    assert len(column_differences("n.t", columns(s="struct<name:int>"), nested, add=True)) == 1


def test_a_path_that_parquet_has_twice_is_refused() -> None:
    """The statistics of a file are found by path."""
    schema = columns(**{"s": "array<int>", "s.list.element": "int"})
    assert unsupported_columns(schema) == ["a column's name with a dot is also the path of a field; rename it"]


def test_a_new_table_has_fencepost_columns_last_and_is_partitioned_by_them() -> None:
    schema = new_schema(columns(a="int", l="array<struct<b:map<string,int>>>"))
    assert [(one.name, one.required) for one in schema.fields] == [
        ("a", False),
        ("l", False),
        ("fencepost_interval", True),
        ("fencepost_revision", True),
    ]
    assert len({*schema.field_ids}) == len(schema.field_ids) == 8
    assert [str(one) for one in new_partition_spec(schema).fields] == [
        f"1000: fencepost_interval: identity({schema.find_field('fencepost_interval').field_id})",
        f"1001: fencepost_revision: identity({schema.find_field('fencepost_revision').field_id})",
    ]


def test_columns_of_the_table_in_another_order_and_beyond_the_result_are_no_difference() -> None:
    table = Schema(
        i.NestedField(1, "fencepost_revision", i.IntegerType(), required=True),
        i.NestedField(2, "extra", i.TimeType(), required=False),
        i.NestedField(3, "b", i.LongType(), required=True),
        i.NestedField(4, "a", i.DoubleType(), required=False),
        i.NestedField(5, "fencepost_interval", i.TimestamptzType(), required=True),
    )
    assert column_differences("n.t", columns(a="float", b="int"), table, add=False) == []


def test_each_difference_comes_with_its_cure() -> None:
    table = Schema(
        i.NestedField(1, "n", i.IntegerType(), required=False),
        i.NestedField(2, "f", i.FloatType(), required=False),
        i.NestedField(3, "d", i.DecimalType(9, 2), required=False),
        i.NestedField(4, "text", i.StringType(), required=False),
        i.NestedField(5, "must", i.StringType(), required=True),
        i.NestedField(
            6,
            "s",
            i.StructType(
                i.NestedField(7, "x", i.IntegerType(), required=False),
                i.NestedField(8, "y", i.DateType(), required=True),
            ),
            required=False,
        ),
        i.NestedField(9, "l", i.ListType(10, i.IntegerType(), element_required=False), required=False),
        i.NestedField(11, "fencepost_interval", i.TimestampType(), required=True),
    )
    result = columns(
        n="bigint",
        f="double",
        d="decimal(12,2)",
        text="int",
        s="struct<x:bigint,z:array<string>>",
        l="array<bigint>",
        **{"we`ird": "timestamp"},
    )
    found = column_differences("n.t", result, table, add=False)
    assert found == [
        "column fencepost_interval is timestamp_ntz: create the table again with it as timestamp",
        "it has no column fencepost_revision: create it again with fencepost_revision int",
        "it has no column s.z: ALTER TABLE n.t ADD COLUMN `s`.`z` array<string>",
        "it has no column we`ird: ALTER TABLE n.t ADD COLUMN `we``ird` timestamp",
        "column n is int, and the transform gives bigint: ALTER TABLE n.t ALTER COLUMN `n` TYPE bigint",
        "column f is float, and the transform gives double: ALTER TABLE n.t ALTER COLUMN `f` TYPE double",
        "column d is decimal(9,2), and the transform gives decimal(12,2): "
        "ALTER TABLE n.t ALTER COLUMN `d` TYPE decimal(12,2)",
        "column text is string, and the transform gives int: cast it in the transform",
        "column s.x is int, and the transform gives bigint: ALTER TABLE n.t ALTER COLUMN `s`.`x` TYPE bigint",
        "column s.y is required, and the transform does not give it: ALTER TABLE n.t ALTER COLUMN `s`.`y` DROP NOT NULL",
        "column l.element is int, and the transform gives bigint: ALTER TABLE n.t ALTER COLUMN `l`.`element` TYPE bigint",
        "column must is required, and the transform does not give it: ALTER TABLE n.t ALTER COLUMN `must` DROP NOT NULL",
    ]
    assert column_differences("n.t", result, table, add=True) == [one for one in found if "ADD COLUMN" not in one]
    assert missing_columns(result, table) == {
        ("s", "z"): t.ArrayType(t.StringType()),
        ("we`ird",): t.TimestampType(),
    }


def test_another_shape_is_a_difference() -> None:
    table = new_schema(columns(a="array<int>", m="map<string,int>", s="struct<x:int>"))
    assert column_differences("n.t", columns(a="int", m="struct<x:int>", s="array<int>"), table, add=True) == [
        "column a is array, and the transform gives int: cast it in the transform",
        "column m is map, and the transform gives struct<x:int>: cast it in the transform",
        "column s is struct, and the transform gives array<int>: cast it in the transform",
    ]

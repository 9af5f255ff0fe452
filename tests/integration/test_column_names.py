"""Names that are one to Spark are one to Fencepost, for names made of every character that has another case."""

from __future__ import annotations

import random
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.formats.column_names import DOTTED, without_case
from fencepost.rows.transform import value_schema

SOME = 4000


def relatives(character: str) -> set[str]:
    """What some rule of Unicode's makes of a character: those that it might be taken for."""
    made = (character.lower(), character.upper(), character.title(), character.casefold())
    return {character, *made, *(one.lower() for one in made), unicodedata.normalize("NFKC", character)}


def words_of_one_letter() -> list[set[str]]:
    """Groups of names that might be one, of every character that has a case."""
    groups: dict[str, set[str]] = defaultdict(set)
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if not 0xD800 <= code < 0xE000 and len(relatives(character)) > 1:
            groups[character.casefold()] |= relatives(character)
            groups[without_case(character)] |= relatives(character)
    return list(groups.values())


@pytest.mark.deep
def test_spark_takes_the_same_names_for_one(spark: Any) -> None:
    """By its resolver, and by the check of a schema's columns. Fencepost refuses a little more: of the dotted I's two characters,
    and of letters that Java's version of Unicode does not have yet."""
    is_letter = spark._jvm.java.lang.Character.isDefined
    resolver = spark._jsparkSession.sessionState().conf().resolver()
    utils = spark._jvm.org.apache.spark.sql.util.SchemaUtils
    as_scala = spark._jvm.org.apache.spark.api.python.PythonUtils.toSeq

    def one_to_spark(first: str, second: str) -> bool:
        if resolver.apply(first, second):
            return True
        names = spark._jvm.java.util.ArrayList()
        names.add(first)
        names.add(second)
        try:
            utils.checkColumnNameDuplication(as_scala(names), False)
        except AnalysisException:
            return True
        return False

    groups = words_of_one_letter()
    chance = random.Random(4)
    pairs = [pair for group in groups for pair in combinations(sorted(group), 2)]
    letters = sorted({letter for group in groups for letter in group if len(letter) == 1})
    for _ in range(SOME):  # names of several letters; the other one has each letter in another form, or the same
        word = [chance.choice(letters) for _ in range(chance.randint(2, 4))]
        other = [chance.choice(sorted(relatives(letter))) for letter in word]
        pairs.append(("".join(word), "".join(other)))
    counted = [0, 0]
    for first, second in pairs:
        ours, theirs = without_case(first) == without_case(second), one_to_spark(first, second)
        told = f"{first!r} {second!r} {[hex(ord(c)) for c in first + second]}"
        assert ours or not theirs, f"{told}: one to Spark"
        if ours and not theirs and DOTTED not in first + second:
            assert not all(is_letter(ord(letter)) for letter in first + second), f"{told}: two to Spark"
        counted[theirs] += 1
    assert min(counted) > 500, "both answers were tried"


@pytest.mark.deep
@pytest.mark.parametrize("pair", [("name", "NAME"), ("id", "\u0131d"), ("size", "\u017fize")])
def test_a_result_with_both_is_refused_before_anything_is_written(
    pair: tuple[str, str], spark: Any, make_pipeline: Callable[..., Pipeline]
) -> None:
    """Spark would write the last two, and could not read them back to be judged."""
    both = spark.range(1).toDF(pair[0]).selectExpr(f"`{pair[0]}`", f"1 AS `{pair[1]}`")
    with pytest.raises(SettingsError, match=rf"the columns '{pair[0]}' and '{pair[1]}', which differ only in case"):
        value_schema(make_pipeline(), both)


@pytest.mark.deep
def test_where_spark_takes_names_for_one_it_replaces_a_column_in_silence(spark: Any) -> None:
    """Why a source may not have both: the transform of a user who sets one column loses the other."""
    frame = spark.range(1).select(F.lit("kept").alias("id"), F.lit("other").alias("\u0131d"))
    (row,) = frame.withColumn("id", F.lit("new")).collect()
    assert tuple(row) == ("new", "new")

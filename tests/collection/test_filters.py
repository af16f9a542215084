"""Filters against their meaning written out, item by item; what is no filter gets one line."""

import json

import numpy as np
import pytest
from collection_toy import open_toy
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import NAMES, chunk

from oasis.collection.filters import (
    MAX_CONDITIONS,
    MAX_LEVELS,
    MAX_VALUES,
    Filter,
    did_you_mean,
)
from oasis.errors import InputError
from oasis.features.words import tokens_of

SCALARS = [0, 1, 1.0, 2.5, -3, 10**16, True, False, None, "", "a", "ab", "Bär", 'q"uote', "tab\t"]
VALUES = [*SCALARS, [], ["a", 1], [True, None, "ab"], [["a"]], {"a": 1}]
FIELDS = ["x", "y", 'odd "name"', "$own"]
TEXTS = [None, "a red dog", "The red, red bus", "dogs in a bus", "黒い猫", ""]
PHRASES = ["red", "dog", "a red", "red bus", "猫", "the", "absent"]
N = 240


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A collection of odd payloads, labels and texts; and what is in it, by id."""
    rng = np.random.default_rng(0)
    X, y = chunk(N, seed=3, bare=0.4, classes=NAMES[:4])
    payloads = [
        {name: VALUES[rng.integers(len(VALUES))] for name in FIELDS if rng.random() < 0.7} or None
        for _ in range(N)
    ]
    texts = [TEXTS[rng.integers(len(TEXTS))] for _ in range(N)]
    with open_toy(tmp_path_factory.mktemp("filters") / "c") as c:
        for rows in (range(150), range(150, N)):
            part = {name: matrix[rows.start : rows.stop] for name, matrix in X.items()}
            c.ingest(
                part,
                [y[row] for row in rows],
                list(rows),
                [payloads[row] for row in rows],
                texts=[texts[row] for row in rows],
            )
        c.delete([5, 17, 100])
        c.update(20, payload={"x": "a"}, labels=[NAMES[0]])
        items = {each.id: each for each in c.items()}
        assert any(each.predicted for each in items.values())
        yield c, items


def same(a, b):
    """Return whether JSON values are equal."""
    number = (int, float)
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, number) and isinstance(b, number):
        return a == b
    return type(a) is type(b) and a == b


def meets(value, condition):
    """Return whether a value that is there meets what is said of it, without any, all and not."""
    if not isinstance(condition, dict):
        return not isinstance(value, (list, dict)) and same(value, condition)
    for name, operand in condition.items():
        both_numbers = all(
            isinstance(each, (int, float)) and not isinstance(each, bool)
            for each in (value, operand)
        )
        both_texts = isinstance(value, str) and isinstance(operand, str)
        match name:
            case "in":
                fine = any(meets(value, each) for each in operand)
            case "contains" if isinstance(value, list):
                fine = any(same(each, operand) for each in value)
            case "contains":
                fine = both_texts and operand in value
            case "exists":
                fine = operand
            case "lt":
                fine = (both_numbers or both_texts) and value < operand
            case "lte":
                fine = (both_numbers or both_texts) and value <= operand
            case "gt":
                fine = (both_numbers or both_texts) and value > operand
            case "gte":
                fine = (both_numbers or both_texts) and value >= operand
        if not fine:
            return False
    return True


def stands(phrase, text):
    found, wanted = tokens_of(text), tokens_of(phrase)
    return any(found[at : at + len(wanted)] == wanted for at in range(len(found)))


def own(name, condition, item):
    """Return whether an item meets a condition on a field, on labels or on its text."""
    if isinstance(condition, dict):
        for sign, parts in (("any", any), ("all", all)):
            if sign in condition and not parts(own(name, c, item) for c in condition[sign]):
                return False
        if "not" in condition and own(name, condition["not"], item):
            return False
        rest = {k: v for k, v in condition.items() if k not in ("any", "all", "not")}
        if not rest:
            return True
        condition = rest
    if name == "$labels":
        labels = item.labels + (item.predicted if condition.get("predicted") else ())
        if "exists" in condition:
            return bool(labels) == condition["exists"]
        return condition["has"] in labels
    if name == "$text":
        if "exists" in condition:
            return (item.text is not None) == condition["exists"]
        return item.text is not None and stands(condition["contains"], item.text)
    if isinstance(condition, dict) and "exists" in condition:
        if (name in item.payload) != condition["exists"]:
            return False
        condition = {k: v for k, v in condition.items() if k != "exists"}
        if not condition:
            return True
    return name in item.payload and meets(item.payload[name], condition)


def passes(where, item):
    """Return whether an item passes, straight from the JSON."""
    for name, condition in where.items():
        match name:
            case "$any":
                fine = any(passes(each, item) for each in condition)
            case "$all":
                fine = all(passes(each, item) for each in condition)
            case "$not":
                fine = not passes(condition, item)
            case _:
                fine = own(name, condition, item)
        if not fine:
            return False
    return True


def some(pairs):
    """Return objects with one or two of these keys."""
    keys = st.lists(st.sampled_from(sorted(pairs)), min_size=1, max_size=2, unique=True)
    return keys.flatmap(lambda names: st.fixed_dictionaries({name: pairs[name] for name in names}))


scalars = st.sampled_from(SCALARS)
bounds = st.sampled_from([0, 1, 2.5, -3, "", "a", "b"])
on_field = st.recursive(
    st.one_of(
        scalars,
        some(
            {
                "in": st.lists(scalars, max_size=4),
                "contains": scalars,
                "exists": st.booleans(),
                **dict.fromkeys(("lt", "lte", "gt", "gte"), bounds),
            }
        ),
    ),
    lambda inner: some(
        {"any": st.lists(inner, max_size=3), "all": st.lists(inner, max_size=3), "not": inner}
    ),
    max_leaves=4,
)


def on(leaf):
    return st.recursive(
        leaf,
        lambda inner: some({"any": st.lists(inner, max_size=3), "not": inner}),
        max_leaves=3,
    )


labels = on(
    st.one_of(
        st.fixed_dictionaries(
            {"has": st.sampled_from(NAMES[:5])}, optional={"predicted": st.booleans()}
        ),
        st.fixed_dictionaries({"exists": st.booleans()}, optional={"predicted": st.booleans()}),
    )
)
phrases = on(
    st.one_of(
        st.fixed_dictionaries({"contains": st.sampled_from(PHRASES)}),
        st.fixed_dictionaries({"exists": st.booleans()}),
    )
)
one = st.one_of(
    some(dict.fromkeys([*FIELDS, "absent"], on_field)),
    st.fixed_dictionaries({"$labels": labels}, optional={"x": on_field}),
    st.fixed_dictionaries({"$text": phrases}, optional={"y": on_field, "$labels": labels}),
)
filters = st.recursive(
    st.one_of(one, st.just({})),
    lambda inner: some(
        {"$any": st.lists(inner, max_size=3), "$all": st.lists(inner, max_size=3), "$not": inner}
    ),
    max_leaves=5,
)


@settings(deadline=None, max_examples=200)
@given(filters)
def test_filters_equal_their_meaning(filled, where):
    c, items = filled
    expected = {each for each, item in items.items() if passes(where, item)}
    parsed = Filter.of(json.loads(json.dumps(where)))
    keys = c._queries.allow_lists.of(parsed).keys
    assert (np.diff(keys) > 0).all()
    with c._catalog.reading() as connection:
        assert {each for (each,) in c._catalog.rows(connection, "id", keys.tolist())} == expected


@settings(deadline=None, max_examples=60)
@given(filters)
def test_searches_find_what_passes(filled, where):
    c, items = filled
    expected = {each for each, item in items.items() if passes(where, item)}
    try:
        (hits,) = c.search(chunk(1, seed=8)[0], 500, where=where)
    except InputError as error:  # a name that no item has, in a filter that finds nothing
        assert not expected
        assert "no item has a field 'absent'" in str(error) or "no class is called" in str(error)
    else:
        assert {hit.id for hit in hits} == expected


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ({"titel": "x"}, r"no item has a field 'titel' in its payload; did you mean 'title'\?"),
        ({"zzz": 1}, "no item has a field 'zzz' in its payload; known are title, year"),
        ({"$label": {"has": "x"}}, "the operator 'has'"),
        ({"$lables": 1}, r"did you mean '\$labels'\?"),
        ({'a"b': 1}, "no item has a field"),
        ({"year": 1, "$any": [{"yaer": 2}]}, r"did you mean 'year'\?"),
        ({"$labels": {"has": NAMES[0] + "s"}}, f"no class is called .* did you mean '{NAMES[0]}'"),
        ({"$labels": {"any": [{"has": "qqqq"}]}}, "no class is called 'qqqq'; known are"),
    ],
)
def test_a_name_that_no_item_has_is_an_error_with_the_did_you_mean(folder, where, line):
    X, y = chunk(6, seed=0, classes=NAMES[:3])
    with open_toy(folder / "c") as c:
        c.ingest(X, y, payload=[{"title": "a", "year": 2000}] * 6)
        with pytest.raises(InputError, match=line) as caught:
            c.search(X, where=where)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 300
        # to ask whether it exists is no mistake, nor to exclude it
        for name in set(where) - {"$any", "$labels", "year"}:
            assert c.search(X, where={name: {"exists": True}}) == [[]] * 6
            assert len(c.search(X, where={"$not": {name: 1}})[0]) == 6


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ({"year": {"gt": "abc"}}, "the field 'year' holds numbers only, and where compares it "),
        ({"year": "2000"}, "with the text '2000'$"),
        ({"year": {"in": ["a", True]}}, "with the text 'a'$"),
        ({"year": {"contains": 2}}, "holds numbers only, which cannot contain the number 2$"),
        ({"title": {"lte": 3}}, "the field 'title' holds texts only, .* the number 3; in double"),
        ({"title": {"lte": "c", "gt": 3}}, "holds texts only"),
        ({"title": {"contains": 3}}, "cannot contain the number 3; in double quotes, .3., it is a"),
        ({"fine": 1}, "the field 'fine' holds true and false only"),
        ({"year": True}, "compares it with True$"),
        ({"tags": "boat"}, r"holds lists only, .*; {'contains': 'boat'} asks for an element"),
        ({"sort": "x", "$any": [{"year": {"lt": "x"}}]}, "'year' holds numbers only"),
        ({'a"b': "x"}, "holds numbers and null only"),
        ({"year": {"gt": "x" * 5000}}, "holds numbers only"),
    ],
)
def test_a_comparison_with_another_kind_of_value_is_an_error(folder, where, line):
    X, y = chunk(6, seed=0, classes=NAMES[:3])
    payload = {"title": "b", "year": 2000, "fine": True, "tags": ["red"], "sort": "x", 'a"b': 1}
    with open_toy(folder / "c") as c:
        c.ingest(X, y, payload=[*[payload] * 5, {**payload, 'a"b': None}])
        with pytest.raises(InputError, match=line) as caught:
            c.search(X, where=where)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_a_comparison_that_a_later_item_may_meet_finds_nothing(folder):
    X, y = chunk(6, seed=0, classes=NAMES[:3])
    first = {"size": 1, "name": "b", 'a"b': "b", "sold": None, 'nothing"': None}
    payloads = [first] * 5 + [{"size": "b", "name": "b"}]
    with open_toy(folder / "c") as c:
        c.ingest(X, y, payload=payloads)
        for where in (
            {"size": {"gt": "c"}},  # one size is a text
            {"size": {"gt": 5.5}},
            {"name": {"lt": "a"}},
            {"name": {"contains": "x"}},
            {"name": None},
            {"name": {"in": [1, None]}},
            {"name": {"in": [1, "c"]}},
            {"name": {"in": []}},
            {'a"b': "c"},
            {"sold": 3},  # no item tells what its values will be
            {"sold": {"contains": "x"}},
            {'nothing"': 3},
        ):
            assert c.search(X, where=where) == [[]] * 6
        # of an item that passes otherwise, it is no mistake
        assert len(c.search(X, where={"name": {"not": 1}})[0]) == 6


@pytest.mark.parametrize("mistake", [{"year": "x"}, {"yaer": 1}])
def test_a_mistake_in_a_filter_that_finds_items_is_none_behind_the_last_of_them(folder, mistake):
    X, y = chunk(6, seed=0, classes=NAMES[:3])
    where = {"$any": [mistake, {"kind": "cat"}]}
    with open_toy(folder / "c") as c:
        c.ingest(
            X, y, range(6), [{"year": 1, "kind": "cat" if row < 3 else "dog"} for row in range(6)]
        )
        lengths = [len(c.search(X, k=2, where=where, offset=at)[0]) for at in (0, 2, 4)]
        assert lengths == [2, 1, 0]
        c.delete([1, 2])
    with open_toy(folder / "c") as c:
        assert c.more_like(0, where=where) == []
        with pytest.raises(InputError):
            c.search(X, where=mistake, offset=2)


def test_names_that_are_long_are_neither_compared_nor_shown_whole():
    long = [f"{number:05d}" + "x" * 10_000 for number in range(30)]
    assert len(did_you_mean(long[0][:-1], long)) < 1500
    assert did_you_mean("skies", [*long, "skyes"]) == "did you mean 'skyes'?"


def nested(levels, sign="$not"):
    where = {"year": 1}
    for _ in range(levels):
        where = {sign: [where]} if sign in ("$any", "$all") else {sign: where}
    return where


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("where", "line"),
    [
        (nested(MAX_LEVELS + 1), "levels"),
        (nested(50_000), "levels"),
        (nested(50_000, "$any"), "levels"),
        ({"year": nested(50_000, "not")}, "levels"),
        ({"year": deep(50_000)}, "must be a text, a number"),
        ({"year": {"in": [deep(50_000)]}}, "compares with texts"),
        ({"year": {"in": deep(50_000)}}, "compares with texts"),
        ({"$labels": deep(50_000)}, "takes one operator"),
        ({"$text": {"contains": deep(50_000)}}, "takes a text, got"),
        ({"$text": {"contains": ["x"] * 1000}}, "takes a text, got"),
        ({"$any": [{"year": 1}] * (MAX_CONDITIONS + 1)}, "conditions"),
        ({"year": {"any": [1] * (MAX_CONDITIONS + 1)}}, "conditions"),
        ({"$any": [{"year": 1}, *[{}] * MAX_CONDITIONS]}, "conditions"),
        ({"$any": [{"year": 1}, *[{"$not": {}}] * MAX_CONDITIONS]}, "conditions"),
        ({"$all": [{"$any": []}] * (MAX_CONDITIONS + 1)}, "conditions"),
        ({"year": {"any": [1, *[{"all": []}] * MAX_CONDITIONS]}}, "conditions"),
        ({"year": {"in": range(MAX_VALUES + 1)}}, "100,000 values"),
        ({"year": "x" * 10_000_000, "near": {"x" * 10_000_000: 1}}, "has the operator"),
        ({"$any": {"year": 1}}, "takes a list of filters"),
        ({"$any": [1]}, "must map fields"),
        ({"year": {"any": 1}}, "takes a list of conditions"),
        ({"year": {"any": []}, "$not": 3}, "must map fields"),
        ({"year": {"exists": 1}}, "takes true or false"),
        ({"$labels": {"exists": "yes"}}, "takes true or false"),
        ({"$text": {"exists": None}}, "takes true or false"),
        ({"year": {"contains": [1]}}, "compares with texts"),
        ({"year": {"contains": float("nan")}}, "finite numbers"),
        ({"\ud800": 1}, "half a surrogate"),
        ({"year": {"not": {}}}, "must be a text, a number"),
    ],
)
def test_what_is_no_filter_or_too_large_gets_one_line(where, line):
    with pytest.raises(InputError, match=line) as caught:
        Filter.of(where)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_filters_of_the_largest_size_are_answered(filled):
    c, items = filled
    # as deep, as broad and as long as they may be
    where = {"$any": [{"x": {"contains": str(n)}} for n in range(MAX_CONDITIONS - 1)]}
    for _ in range(MAX_LEVELS - 3):
        where = {"$not": where}
    where["x"] = {"in": [*range(MAX_VALUES - MAX_CONDITIONS), "a"]}
    # it is about one field: the slow truth is asked once for each of its values
    kinds = {each: json.dumps(item.payload.get("x", "absent")) for each, item in items.items()}
    some_item = {kind: items[each] for each, kind in kinds.items()}
    fine = {kind for kind, item in some_item.items() if passes(where, item)}
    expected = {each for each, kind in kinds.items() if kind in fine}
    parsed = Filter.of(where)
    assert len(expected) > 0
    with c._catalog.reading() as connection:
        keys = c._queries.allow_lists.of(parsed).keys
        assert {each for (each,) in c._catalog.rows(connection, "id", keys.tolist())} == expected


KEYS = ["$any", "$all", "$not", "$labels", "$text", "$x", "x", "any", "all", "not", "in", "lt"]
KEYS += ["contains", "exists", "has", "predicted"]
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=300)
@given(JSON)
def test_whatever_json_is_given_is_a_filter_or_refused_in_a_line(filled, where):
    try:
        parsed = Filter.of(where)
    except InputError as error:
        assert "\n" not in str(error) and len(str(error)) < 500
    else:
        filled[0]._queries.allow_lists.of(parsed)


def test_an_index_of_a_field_changes_no_answer(folder):
    X, y = chunk(60, seed=1)
    values = [row % 7 if row % 3 else [None, True, "3", 3.0, [3]][row % 5] for row in range(60)]
    filters = [{"x": 3}, {"x": {"gte": 3}}, {"x": "3"}, {"x": {"in": [3, True]}}, {"y": 1}]
    filters += [{"$not": {"x": 3}}, {"x": {"exists": True}}, {"x": {"contains": 3}}]
    with open_toy(folder / "c") as c:
        c.ingest(X, y, range(60), [{"x": value} for value in values])
        asked = [Filter.of(where) for where in filters]
        before = [c._queries.allow_lists.of(where).keys.tolist() for where in asked]
        c.index_field("x")
        c.index_field("x")
        c.update(0, payload={"x": 3})
        c.update(0, payload={"x": values[0]})
        assert [c._queries.allow_lists.of(where).keys.tolist() for where in asked] == before
        with c._catalog.reading() as connection:
            plan = connection.execute(
                f"EXPLAIN QUERY PLAN SELECT key FROM items WHERE {asked[0].sql}", [3]
            )
            assert any("INDEX field_78" in row[3] for row in plan)
        with pytest.raises(InputError, match="cannot have an index"):
            c.index_field('a "b"')
        assert c.check() == []

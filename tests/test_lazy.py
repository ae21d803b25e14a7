"""A lazy list is a list in every way, and keeps nothing until it is changed."""

import copy
import pickle
from operator import add

import pytest

from clearhead.lazy import LazyList, Selection


class Counted:
    """Numbers 0 … 9 that count how often one is read."""

    def __init__(self):
        self.reads = 0

    def __len__(self):
        return 10

    def __getitem__(self, index):
        self.reads += 1
        return range(10)[index]


def lazy():
    return LazyList.read_from(Counted())


READ = {
    "length": len,
    "item": lambda items: items[3],
    "last": lambda items: items[-1],
    "slice": lambda items: items[8:2:-2],
    "nested slice": lambda items: items[2:][1:3],
    "list": list,
    "unpacked": lambda items: [*items],
    "tuple": tuple,
    "reversed": lambda items: list(reversed(items)),
    "sorted": lambda items: sorted(items, reverse=True),
    "contains": lambda items: (4 in items, 10 in items),
    "index": lambda items: items.index(4),
    "count": lambda items: items.count(4),
    "equal": lambda items: (items == list(range(10)), list(range(10)) == items, items == items[:], items == 3),
    "unequal": lambda items: (items != [1], items < [1], items >= [0]),
    "sum": lambda items: add(items, [1]),
    "sum on the right": lambda items: add([1], items),
    "sum of two": lambda items: items + items,
    "product": lambda items: (items * 2, 2 * items),
    "repr": repr,
    "copy": lambda items: items.copy(),
    "shallow copy": copy.copy,
    "pickle": lambda items: pickle.loads(pickle.dumps(items)),
    "true": bool,
    "extended": lambda items: extended([7], items),
    "assigned": lambda items: assigned([7, 8, 9], items),
    "joined": lambda items: "".join(map(str, items)),
}
CHANGED = {
    "append": lambda items: items.append(3),
    "extend": lambda items: items.extend([3, 4]),
    "extend by itself": lambda items: items.extend(items),
    "in place": lambda items: items.__iadd__([3]),
    "repeat": lambda items: items.__imul__(2),
    "set": lambda items: items.__setitem__(0, 5),
    "set slice": lambda items: items.__setitem__(slice(0, 3), lazy()),
    "delete": lambda items: items.__delitem__(0),
    "insert": lambda items: items.insert(2, 7),
    "remove": lambda items: items.remove(7),
    "pop": lambda items: items.pop(),
    "clear": lambda items: items.clear(),
    "sort": lambda items: items.sort(key=lambda number: -number),
    "reverse": lambda items: items.reverse(),
}


def extended(items, others):
    items.extend(others)
    return items


def assigned(items, others):
    items[1:2] = others
    return items


@pytest.mark.parametrize("name", READ)
def test_it_reads_as_a_list(name):
    assert READ[name](lazy()) == READ[name](list(range(10)))


@pytest.mark.parametrize("name", CHANGED)
def test_it_changes_as_a_list(name):
    expected = list(range(10))
    items = lazy()
    result = CHANGED[name](items)
    assert CHANGED[name](expected) == result
    assert items == expected
    assert len(items) == len(expected)
    assert list(items) == expected


def test_it_is_a_list():
    assert isinstance(lazy(), list)
    assert isinstance(lazy()[:2], LazyList)
    assert isinstance(LazyList([1, 2])[:1], LazyList)
    with pytest.raises(IndexError, match="list index out of range"):
        lazy()[10]
    with pytest.raises(TypeError):
        lazy()["a"]


def test_only_what_is_asked_for_is_read():
    source = Counted()
    items = LazyList.read_from(source)
    assert len(items[2:5]) == 3
    assert source.reads == 0
    assert items[2:5][1] == 3
    assert source.reads == 1


def test_a_selection_can_be_cut():
    selection = Selection(range(100, 200), [5, 3, 9])
    assert list(selection) == [105, 103, 109]
    assert list(selection[1:]) == [103, 109]
    assert selection[-1] == 109

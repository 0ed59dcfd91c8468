from __future__ import annotations

import threading

import pytest

from model.data.prefetch import Prefetch, with_next


def test_the_next_is_begun_before_it_is_asked_for() -> None:
    begun = {key: threading.Event() for key in range(3)}
    threads = set()

    def make(key: int) -> int:
        begun[key].set()
        threads.add(threading.get_ident())
        return 10 * key

    ahead = Prefetch(make, background=True)
    assert ahead.get(0, 1) == 0
    assert begun[1].wait(60) and not begun[2].is_set()
    assert ahead.get(1) == 10 and ahead.get(2) == 20
    ahead.close()
    assert len(threads) == 1 and threading.get_ident() not in threads


def test_another_key_than_foreseen_has_its_own_value() -> None:
    ahead = Prefetch(lambda key: key * 2, background=True)
    assert [ahead.get(1, 2), ahead.get(5, 6), ahead.get(6)] == [2, 10, 12]
    ahead.close()


@pytest.mark.parametrize("background", [True, False])
def test_a_fault_is_that_of_its_own_key(background: bool) -> None:
    ahead = Prefetch(lambda key: 1 // key, background=background)
    assert ahead.get(1, 0) == 1
    with pytest.raises(ZeroDivisionError):
        ahead.get(0)
    ahead.close()


def test_without_a_thread_nothing_is_made_ahead() -> None:
    made: list[int] = []
    ahead: Prefetch[int, None] = Prefetch(made.append, background=False)
    ahead.get(1, 2)
    assert made == [1]


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_every_item_comes_with_the_next(count: int) -> None:
    items = list(range(count))
    assert list(with_next(items)) == list(zip(items, [*items[1:], None], strict=False))

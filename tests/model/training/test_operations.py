from __future__ import annotations

import torch

from model.training.operations import Operations


def test_reads_and_operations_are_counted_and_views_are_not() -> None:
    values = torch.arange(6.0)
    with Operations() as counted:
        values.view(2, 3).T.detach()
    assert (counted.reads, counted.launches) == (0, 0)
    with Operations() as counted:
        total = (values * 2).sum()
        assert float(total) == 30 and total.item() == 30 and bool(total > 1)
    assert counted.reads == 3
    assert counted.by_name["aten::mul"] == counted.by_name["aten::sum"] == 1
    assert counted.launches == 3  # the comparison too


def test_copies_are_counted_by_where_they_go() -> None:
    with Operations() as counted:
        there = torch.ones(3).to("meta")
        there.copy_(torch.zeros(3))
        torch.ones(3).to(torch.float64)
    assert (counted.to_device, counted.to_host) == (2, 0)
    counted._copied(torch.device("meta"), torch.device("cpu"))
    assert counted.to_host == 1


def test_the_way_back_is_counted_as_well() -> None:
    weights = torch.ones(3, requires_grad=True)
    with Operations() as counted:
        loss = (weights * 2).sum()
        forth = counted.launches
        loss.backward()
    assert counted.launches > forth

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.optim.swa_utils import AveragedModel

from model.evaluation.model_folder import read_model, save_model
from model.modules.encoder import load_tokenizer
from model.modules.multitask import MultitaskModel
from tests.tuner.soup_runs import mean_of
from tuner.soup.average import SoupModel, add_to, first_unfit, stock_share, tensors_of
from tuner.soup.combinations import STOCK, WEIGHTS, combine, single


@pytest.fixture(scope="module")
def folders(
    model_of: Callable[..., MultitaskModel], tmp_path_factory: pytest.TempPathFactory
) -> list[Path]:
    """Four models of one make, each with weights of its own."""
    root = tmp_path_factory.mktemp("models")
    found = []
    for number in range(4):
        model = model_of(seed=number, adapter="pals")
        generator = torch.Generator().manual_seed(number)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
        save_model(root / str(number), model, load_tokenizer("tiny"))
        found.append(root / str(number))
    return found


def loaded(folder: Path) -> dict[str, torch.Tensor]:
    return dict(tensors_of(folder))


def test_a_folders_tensors_are_the_models(folders: list[Path]) -> None:
    model, _ = read_model(folders[0])
    state = model.state_dict()
    assert loaded(folders[0]).keys() == state.keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in tensors_of(folders[0]))


def test_a_mean_of_one_is_that_model(folders: list[Path]) -> None:
    mean = mean_of(folders[:1], [3.0])
    assert all(torch.equal(mean[n], t) for n, t in loaded(folders[0]).items())


@pytest.mark.parametrize("times", [2, 3, 7])
def test_a_mean_of_equals_is_that_model_to_the_bit(folders: list[Path], times: int) -> None:
    mean = mean_of([folders[1]] * times, [1.0, 0.3, 2.0, 1.7, 0.1, 5.0, 1.0][:times])
    assert all(torch.equal(mean[n], t) for n, t in loaded(folders[1]).items())


def test_it_is_torchs_own_average(folders: list[Path]) -> None:
    models = [read_model(folder)[0] for folder in folders]
    average = AveragedModel(models[0])
    for model in models:
        average.update_parameters(model)
    mean = mean_of(folders, [1.0] * 4)
    for name, parameter in average.module.named_parameters():
        torch.testing.assert_close(mean[name], parameter.detach(), rtol=1e-6, atol=1e-7)


def test_weights_weigh_and_only_their_shares_count(folders: list[Path]) -> None:
    weights = [3.0, 1.0, 0.5, 2.0]
    mean = mean_of(folders, weights)
    double = mean_of(folders, [2 * weight for weight in weights])
    parts = [loaded(folder) for folder in folders]
    for name, tensor in mean.items():
        exact = sum(w * p[name].double() for w, p in zip(weights, parts, strict=True))
        torch.testing.assert_close(tensor.double(), exact / 6.5, rtol=1e-5, atol=1e-6)
        assert torch.equal(tensor, double[name])


class Read(list[Path]):
    """Folders that note which of them were read."""

    def __init__(self, folders: list[Path]) -> None:
        super().__init__(folders)
        self.noted: list[int] = []

    def __getitem__(self, number: Any) -> Any:
        self.noted.append(number)
        return super().__getitem__(number)


def test_an_average_that_begins_with_the_last_one_reads_only_the_rest(folders: list[Path]) -> None:
    there = Read(folders)
    soup_model = SoupModel(there, 0, torch.device("cpu"))

    def read(*members: int, **more: Any) -> list[int]:
        there.noted.clear()
        soup_model.average({"mood": combine(WEIGHTS, members, **more)})
        return there.noted

    assert read(0, 1) == [0, 1]
    assert read(0, 1, 2) == [2]
    assert read(0, 1, 3) == [0, 1, 3]  # the model is the mean with 2, which was not taken
    assert read(0, 1, 3) == []
    assert read(0, 1, 3, head=single(2)) == [2]
    assert read(0, 1, 3) == [0, 1, 3]  # another's head was in it


def test_half_precision_is_averaged_in_single(folders: list[Path], tmp_path: Path) -> None:
    model, tokenizer = read_model(folders[0])
    save_model(tmp_path / "half", model.to(torch.bfloat16), tokenizer)
    mean = mean_of([tmp_path / "half", folders[1]], [1.0, 1.0])
    assert {tensor.dtype for tensor in mean.values()} == {torch.float32}


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan"), float("inf")])
def test_a_share_that_is_none_is_refused(folders: list[Path], share: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        add_to(read_model(folders[0])[0], folders[1], share)


def test_distance_is_relative_to_the_other(folders: list[Path]) -> None:
    soup_model = SoupModel(folders, 2, torch.device("cpu"))
    a, b = (
        torch.cat([t.flatten() for t in loaded(folder).values()]).double() for folder in folders[:2]
    )
    expected = float((b - a).norm() / a.norm())
    assert soup_model.distances([0, 1], 0) == [0, pytest.approx(expected, rel=1e-4)]


def test_a_pot_gives_the_same_average_whatever_it_held_before(folders: list[Path]) -> None:
    soup_model = SoupModel(folders, 0, torch.device("cpu"))
    wanted = [[0], [0, 1], [0, 1, 2], [1, 3], [0, 2, 3], [3], [0, 1, 2, 3], [0, 1]]
    for members in wanted:
        model, _ = soup_model.average({"mood": combine(WEIGHTS, members)})
        mean = mean_of([folders[m] for m in members], [1.0] * len(members))
        assert all(torch.equal(t, mean[n]) for n, t in model.state_dict().items()), members


def test_an_average_that_could_not_be_read_leaves_nothing_to_the_next(folders: list[Path]) -> None:
    class Lost(list[Path]):
        def __getitem__(self, number: Any) -> Any:
            if number == 1:
                raise OSError("out of reach")
            return super().__getitem__(number)

    there = Lost(folders)
    soup_model = SoupModel(there, 0, torch.device("cpu"))
    for members in ([0, 1, 2], [0, 1]):
        with pytest.raises(OSError, match="out of reach"):
            soup_model.average({"mood": combine(WEIGHTS, members)})
        mean = mean_of([folders[m] for m in (0, 2, 3)], [1.0] * 3)
        model, _ = soup_model.average({"mood": combine(WEIGHTS, [0, 2, 3])})
        assert all(torch.equal(t, mean[n]) for n, t in model.state_dict().items()), members


def test_a_task_can_have_the_head_and_pals_of_one_alone(folders: list[Path]) -> None:
    soup_model = SoupModel(folders, 0, torch.device("cpu"))
    model, _ = soup_model.average(
        {"mood": combine(WEIGHTS, [0, 1], head=single(2)), "near": combine(WEIGHTS, [0, 1])}
    )
    mean, own = mean_of(folders[:2], [1.0, 1.0]), loaded(folders[2])
    for name, tensor in model.state_dict().items():
        alone = "task_mood." in name
        assert torch.equal(tensor, own[name] if alone else mean[name]), name
    assert any("pals.tasks.task_mood." in name for name in own)


def test_a_head_can_be_an_average_of_its_own(folders: list[Path]) -> None:
    soup_model = SoupModel(folders, 0, torch.device("cpu"))
    head = combine(WEIGHTS, [1, 2, 3], [0.2, 0.5, 0.3])
    model, _ = soup_model.average({"mood": combine(WEIGHTS, [0, 1], head=head)})
    trunk = mean_of(folders[:2], [1.0, 1.0])
    heads = mean_of(folders[1:], head.weights)
    for name, tensor in model.state_dict().items():
        own = heads if "task_mood." in name else trunk
        torch.testing.assert_close(tensor, own[name], rtol=1e-6, atol=1e-7)


def held() -> int:
    """Bytes of all tensors that hold something, each storage once.

    By their very type: the compiler leaves tensors of its own that have none.
    """
    storages = {}
    for each in gc.get_objects():
        if type(each) in (torch.Tensor, torch.nn.Parameter) and each.device.type == "cpu":
            storage = each.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def test_nothing_is_kept_beside_the_model_that_is_evaluated(folders: list[Path]) -> None:
    one = sum(tensor.nbytes for tensor in loaded(folders[0]).values())
    gc.collect()
    before = held()
    soup_model = SoupModel(folders, 0, torch.device("cpu"), lambda: loaded(folders[3]))
    for rule in (WEIGHTS, STOCK):
        soup_model.average({"mood": combine(rule, [0, 1, 2])})
        gc.collect()
        assert 0.9 * one <= held() - before <= 1.2 * one, rule


@pytest.mark.parametrize("rule", [WEIGHTS, STOCK])
def test_an_ingredients_tensor_is_gone_before_the_next_is_read(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    """Of the tied embeddings of a small model, two would be one model more."""
    models = SoupModel(folders, 0, torch.device("cpu"), lambda: start)
    start = {name: tensor.clone() for name, tensor in models.model.state_dict().items()}
    read: list[weakref.ref[torch.Tensor]] = []

    @contextmanager
    def watched(*named: Any, **options: Any) -> Iterator[Any]:
        with safe_open(*named, **options) as file:
            yield SimpleNamespace(keys=file.keys, get_slice=file.get_slice, get_tensor=get(file))

    def get(file: Any) -> Callable[[str], torch.Tensor]:
        def get_tensor(name: str) -> torch.Tensor:
            assert not any(earlier() is not None for earlier in read)
            tensor: torch.Tensor = file.get_tensor(name)
            read[:] = [weakref.ref(tensor)]
            return tensor

        return get_tensor

    monkeypatch.setattr("tuner.soup.average.safe_open", watched)
    models.average({"mood": combine(rule, range(4))})
    assert read


def test_model_stock_is_its_formula_tensor_by_tensor(folders: list[Path]) -> None:
    start = {n: t for n, t in loaded(folders[3]).items() if n.startswith("encoder.")}
    model, _ = SoupModel(folders, 0, torch.device("cpu"), lambda: start).average(
        {"mood": combine(STOCK, [0, 1, 2])}
    )
    parts = [loaded(folder) for folder in folders[:3]]
    for name, tensor in model.state_dict().items():
        mean = torch.stack([part[name].double() for part in parts]).mean(0)
        if name in start and tensor.is_floating_point():
            ways = [(part[name] - start[name]).double().flatten() for part in parts]
            pairs = [(0, 1), (0, 2), (1, 2)]
            cosines = [torch.cosine_similarity(ways[a], ways[b], dim=0) for a, b in pairs]
            cosine = float(torch.stack(cosines).mean().clamp(0, 1))
            share = 3 * cosine / (1 + 2 * cosine)
            mean = share * mean + (1 - share) * start[name].double()
        torch.testing.assert_close(tensor.double(), mean.to(torch.float64), rtol=1e-4, atol=1e-5)
    assert [stock_share(cosine, 4) for cosine in (1.0, 0.0, -0.5)] == [1, 0, 0]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_tensor_that_is_not_finite_is_named(
    folders: list[Path], tmp_path: Path, value: float
) -> None:
    model, tokenizer = read_model(folders[0])
    save_model(tmp_path / "bad", model, tokenizer)
    heads = load_file(tmp_path / "bad" / "heads.safetensors")
    heads["heads.task_mood.output.bias"][1] = value
    save_file(heads, tmp_path / "bad" / "heads.safetensors")
    assert first_unfit(tmp_path / "bad") == "heads.task_mood.output.bias"
    assert first_unfit(folders[0]) is None

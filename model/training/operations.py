"""How much a stretch of code asks of the device, counted without one.

Every operation is a launch on a GPU, more or less; a read of a number lets the host wait for all
that was launched before; so does a copy to the host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

READ = "aten::_local_scalar_dense"
COPIES = ("aten::_to_copy", "aten::copy_")
# They make tensors or other views of them, and launch nothing.
FREE = ("aten::empty", "aten::detach", "aten::alias", "aten::_unsafe_view", "aten::lift_fresh")


class Operations(TorchDispatchMode):
    """Counts within its block; of one thread, so without replicas."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.by_name: Counter[str] = Counter()
        self.to_host = 0
        self.to_device = 0

    @property
    def reads(self) -> int:
        return self.by_name[READ]

    @property
    def launches(self) -> int:
        return sum(self.by_name.values()) - self.reads

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name
        if not func.is_view and not name.startswith(FREE):
            self.by_name[name] += 1
        if name in COPIES:
            source = args[1] if name == COPIES[1] else args[0]
            if isinstance(source, Tensor) and isinstance(result, Tensor):
                self._copied(source.device, result.device)
        return result

    def _copied(self, source: torch.device, target: torch.device) -> None:
        if source.type != target.type:
            self.to_host += target.type == "cpu"
            self.to_device += source.type == "cpu"

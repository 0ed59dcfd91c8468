"""One Ray for all searches of this process: a start takes longer than a small search."""

from __future__ import annotations

from contextlib import ExitStack


class SharedRay:
    def __init__(self) -> None:
        self.open = ExitStack()

    def start(self) -> None:
        import ray

        from tuner.ray_backend.session import ray_session

        if not ray.is_initialized():
            self.open.enter_context(ray_session(None))

    def stop(self) -> None:
        self.open.close()


SHARED_RAY = SharedRay()

"""Many runs: the search, the soup and the report.

>>> from tuner import run_search
>>> result = run_search(space="default", num_samples=8)
>>> result.summary.text()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.afterwards import SearchResult

__all__ = ["run_search"]


def run_search(**settings: Any) -> SearchResult:
    """A search with the command's settings: `space`, `num_samples`, `storage_path`, ...

    With `resume=True` all that is left out comes from the run's folder, as on the command line.
    """
    from dataclasses import fields

    from model.errors import InputError, suggest
    from tuner.asked import Asked, How
    from tuner.driver import search
    from tuner.run_folder import complete

    asked = {item.name for item in fields(Asked)}
    how = {item.name for item in fields(How)}
    unknown = [
        f"'{key}' is not one; {suggest(key, asked | how)}" for key in settings.keys() - asked - how
    ]
    if unknown:
        raise InputError("run_search", unknown)
    given = {key: value for key, value in settings.items() if key in asked}
    place = How(**{key: value for key, value in settings.items() if key in how})
    return search(*complete(given, place))

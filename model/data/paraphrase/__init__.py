"""More training rows from a language model: each training sentence said in other words.

`jobs` says what to ask, `prompt` how; `server` or `local` answers; `journal` keeps every answer, so
that a killed command goes on; `select` takes out copies, with `near`; `make` puts it together.
Import from those modules.
"""

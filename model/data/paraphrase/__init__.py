"""More training rows from a language model: each training sentence said in other words.

`jobs` says what to ask, `prompt` how. A `server` (many requests at once: `asking`) or a `local`
model answers. `answer_file` keeps every answer, so that a killed command goes on. `select` takes
out copies, with `near`; `make` puts it together, and `card` tells of it. Import from those modules.
"""

"""From files to tensors: sources -> one Arrow schema -> tokens, cached -> batches.

`sources` reads any format into `rows.SCHEMA`; `tokens` tokenises once and maps the result
from disk; `layout` turns token ids into model inputs; `batches` says which rows come when.
`python -m model.data` imports and describes data. Import from those modules: this one stays
empty so that describing a file does not load torch.
"""

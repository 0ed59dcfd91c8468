from model.data.sample.corpus import Dice, further_rows, sample_split

__all__ = ["Dice", "further_rows", "sample_split"]

"""What counting characters achieves on a run's validation split, to the very numbers of `normscope eval`."""

import math
from pathlib import Path

from lib.runs import np

SMOOTHING = 0.1  # added to every count
NAMES = ("uniform", "unigram", "bigram", "trigram", "4-gram")


def read_characters(path):
    """The code points of a UTF-8 file, less a leading byte order mark."""
    text = Path(path).read_bytes().decode("utf-8-sig")
    return np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)


def split_corpus(data):
    """(training part, validation part, size of the vocabulary) of a config's `data`; characters as 0, 1, 2, ..."""
    paths = data.get("path", [])
    text = np.concatenate([read_characters(p) for p in (paths if isinstance(paths, list) else [paths])])
    apart = read_characters(data["val_path"]) if data.get("val_path") else None
    # floor((1 - val_fraction) N), less what rounding loses of a whole number
    split = math.floor((1 - data.get("val_fraction", 0.1)) * text.size + 2 * np.finfo(float).eps * text.size)
    train, validation = (text[:split], text[split:]) if apart is None else (text, apart)
    vocabulary, codes = _numbered(np.concatenate([train, validation]))
    return codes[:train.size], codes[train.size:], vocabulary


def ladder(data):
    """{name: nats per character} of the validation split of a config's `data`, uniform to 4-gram; without a validation
    split uniform alone. Every character but the first is predicted, from the n − 1 characters of the split before it,
    or as many as there are; counts are those of the training part."""
    train, validation, vocabulary = split_corpus(data)
    levels = {"uniform": math.log(vocabulary)}
    if validation.size < 2:
        return levels
    # Each string of n characters gets a number, in both texts alike: first by its beginning's number and its last
    # character, then renumbered from 0, so that numbers stay small.
    both = np.concatenate([train, validation])
    starts = np.zeros(both.size, dtype=np.int64)  # the number of the string of length n − 1 that starts at each place
    surprises = None
    for n, name in enumerate(NAMES[1:], start=1):
        last = max(both.size - n + 1, 0)
        strings, ids = _numbered(starts[:last] * vocabulary + both[n - 1:])
        in_train = ids[:max(train.size - n + 1, 0)]
        seen = np.bincount(in_train, minlength=strings)
        followed = np.bincount(starts[:in_train.size], minlength=starts.max() + 1)
        places = slice(train.size, last)  # where strings that lie in the validation part start
        now = np.log((followed[starts[places]] + SMOOTHING * vocabulary) / (seen[ids[places]] + SMOOTHING))
        # The first characters have fewer than n − 1 before them: for these the shorter strings' surprise.
        surprises = now[1:] if n == 1 else np.concatenate([surprises[:n - 2], now])
        levels[name] = float(surprises.mean())
        starts = ids
    return levels


def _numbered(values):
    """(how many distinct values, the values renumbered 0, 1, 2, ... in their order)."""
    largest = int(values.max(initial=0))
    if largest < 1 << 24:  # a table is faster than sorting
        present = np.zeros(largest + 1, dtype=bool)
        present[values] = True
        return int(present.sum()), (np.cumsum(present) - 1)[values]
    distinct, codes = np.unique(values, return_inverse=True)
    return distinct.size, codes

"""Sun et al. 2025: do the deepest blocks of a trained pre-norm model do anything?"""

import re

from lib.logs import safetensors_io
from papers.lib.experiment import Claim, Model, Panel, learns, normscope, np, picture_of, placements, unit

PLACEMENTS = placements("pre", "pre_scaled", "deepnorm")


def angles(run):
    """Degrees between the input and the output of each block, mean over the tokens of a batch."""
    streams = [unit(x) for x in Model(run.folder).streams]
    cosines = [(before * after).sum(-1) for before, after in zip(streams, streams[1:])]
    return [np.degrees(np.arccos(np.clip(cosine, -1, 1)).mean()) for cosine in cosines]


def rises_without_block(run):
    """The rise of the loss on held-out text if a block adds nothing (its two output matrices are 0), for each block."""
    tensors, metadata = safetensors_io.read(run.folder / "model.safetensors")
    metadata.pop("checksum", None)
    file = run.folder / "without_block.safetensors"

    def loss(left_out):
        zeroed = [f"blocks.{left_out}.{matrix}.weight" for matrix in ("attn.out", "ffn.out")]
        safetensors_io.write(file, {name: 0 * array if name in zeroed else array for name, array in tensors.items()},
                             metadata)
        return float(re.search(r"^model +(\S+)", normscope("eval", file), re.MULTILINE)[1])

    whole, *without = map(loss, (None, *range(run.value("model.n_layer"))))
    file.unlink()
    return [value - whole for value in without]


def measure(run):
    return {"angle": angles(run), "rise": rises_without_block(run)}


def last_third_over_first(by_block):
    """The mean of the last third of the blocks over that of the first third. `by_block`: (seeds, blocks)."""
    values = by_block.mean(axis=0)
    third = len(values) // 3
    return values[-third:].mean() / values[:third].mean()


def claims(runs):
    for placement in PLACEMENTS:
        yield learns(placement, runs.loss(norm_placement=placement))
    for placement, low, high in (("pre", 0, 0.5), ("pre_scaled", 0, 0.5), ("deepnorm", 0.5, 1.2)):
        ratio = last_third_over_first(runs.measured("angle", norm_placement=placement))
        yield Claim(f"{placement}: angle, last third of the blocks over first", ratio, low, high)
    rises = runs.measured("rise", norm_placement="pre")
    last_third = rises.mean(axis=0)[-(rises.shape[1] // 3):]
    yield Claim("pre: largest rise of the loss without one block of the last third", last_third.max(), -0.02, 0.02)
    yield Claim("pre: rise of the loss without a block, last third over first", last_third_over_first(rises), -0.5, 0.5)


def picture(runs):
    panels = [Panel(title, text, runs.lines(name, PLACEMENTS), first=1)
              for name, title, text in (("angle", "Angle between a block's input and output", "degrees"),
                                        ("rise", "Rise of the loss without the block", "nats per character"))]
    return picture_of("What each trained block does", panels)

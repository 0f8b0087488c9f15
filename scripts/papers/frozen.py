"""Baroni et al. 2025: what each norm does in a trained model, by the rise of the loss when it divides by an average."""

from lib.model import measures
from papers.lib.experiment import Claim, Panel, Probed, choices, learns, markdown, picture_of, spread

PLACEMENTS = {"pre": ("attn", "FFN"), "sandwich": ("attn", "attn out", "FFN", "FFN out"), "post": ("attn", "FFN"),
              "deepnorm": ("attn", "FFN")}  # the norms of a block, in their order
NORMS = choices("norm", "layernorm", "rmsnorm")
WITH_FINAL_NORM = ("pre", "sandwich")


def rises(run):
    """The rise of the validation loss with each norm frozen, in the order of the forward pass; the last: with all."""
    frozen = measures.freeze(measures.Model(run.folder))
    return [*(norm["rise"] for norm in frozen["norms"].values()), frozen["all"]]


MEASURES = {"rises": rises}


def parts(runs, placement, norm):
    """(rises of the blocks' norms (seeds, blocks, norms of a block), of the final norm (seeds) or None, of all)."""
    values = runs.measured("rises", norm_placement=placement, norm=norm)
    block_rises = values[:, :-2] if placement in WITH_FINAL_NORM else values[:, :-1]
    final = values[:, -2] if placement in WITH_FINAL_NORM else None
    return block_rises.reshape(len(values), -1, len(PLACEMENTS[placement])), final, values[:, -1]


def claims(runs):
    for placement in PLACEMENTS:
        yield learns(f"{placement}, L 6, layernorm", runs.loss(norm_placement=placement, norm="layernorm"))
    for norm in NORMS:
        blocks, final, every = parts(runs, "pre", norm)
        last_third = blocks[:, -(blocks.shape[1] // 3):]
        yield Claim(f"pre, {norm}: rise with the final norm frozen", final.mean(), 0.01, 0.5)
        yield Claim(f"pre, {norm}: rise with a norm of the last third frozen, mean", last_third.mean(), -0.005, 0.005)
        first = blocks[:, 0, 0].mean() - last_third.mean()
        yield Claim(f"pre, {norm}: rise with the first norm frozen, less one of the last third", first, 0.005, 0.5,
                    must_hold=False)
        yield Claim(f"pre, {norm}: rise with all norms frozen", every.mean(), 0.02, 1)
        of_branches = parts(runs, "sandwich", norm)[0].mean(axis=(0, 1))
        yield Claim(f"sandwich, {norm}: mean rise for norms on branches, minus the mean rise for norms on the stream",
                    of_branches[1::2].mean() - of_branches[::2].mean(), 0.002, 1, must_hold=False)
        for placement, low, high, must_hold in (("post", 0.002, 1, False), ("deepnorm", -0.002, 0.002, True)):
            yield Claim(f"{placement}, {norm}: rise with a norm frozen, mean", parts(runs, placement, norm)[0].mean(),
                        low, high, must_hold)


def table(runs):
    lines = []
    for placement in PLACEMENTS:
        for norm in NORMS:
            blocks, final, every = parts(runs, placement, norm)
            chosen = (blocks[:, 0, 0], blocks.mean(axis=(1, 2)), final, every)
            cells = ["" if values is None else spread(values, "{:+.4f}") for values in chosen]
            lines.append([f"{placement}, {norm}", *cells])
    return markdown(["rise of the loss", "first norm", "a norm of a block, mean", "final norm", "all at once"], *lines)


def picture(runs):
    panels = []
    for placement, names in PLACEMENTS.items():
        of_norm = {norm: runs.measured("rises", norm_placement=placement, norm=norm)[:, :-1] for norm in NORMS}
        blocks = of_norm["layernorm"].shape[1] // len(names)
        places = [f"{block} {name}" for block in range(1, blocks + 1) for name in names]
        final = ["the final norm"] * (placement in WITH_FINAL_NORM)
        panels.append(Panel(placement, "nats per character", {norm: Probed(rises) for norm, rises in of_norm.items()},
                            x=(", then ".join(["norms of blocks", *final]), places + final)))
    return picture_of("The rise of the loss with one norm frozen", panels)

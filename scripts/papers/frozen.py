"""Baroni et al. 2025: what each norm does in a trained model, by the rise of the loss when it divides by an average."""

from lib.model import measures
from papers.lib.experiment import Claim, Panel, choices, learns, markdown, picture_of, spread

PLACEMENTS = {"pre": ("attn", "FFN"), "sandwich": ("attn", "attn out", "FFN", "FFN out"), "post": ("attn", "FFN"),
              "deepnorm": ("attn", "FFN")}  # the norms of a block, in their order
NORMS = choices("norm", "layernorm", "rmsnorm")


def measure(run):
    """The rise of the validation loss with each norm frozen, in the order of the forward pass, and with all."""
    frozen = measures.freeze(measures.Model(run.folder))
    return {"rises": [norm["rise"] for norm in frozen["norms"].values()], "all": frozen["all"]}


def parts(runs, placement, norm):
    """(rises of the blocks' norms (seeds, blocks, norms of a block), of the final norm (seeds, 1) or, without one,
    (seeds, 0), of all)."""
    rises, every = (runs.measured(name, norm_placement=placement, norm=norm) for name in ("rises", "all"))
    count = len(PLACEMENTS[placement])
    blocks = rises.shape[1] // count
    return rises[:, :blocks * count].reshape(len(rises), blocks, count), rises[:, blocks * count:], every


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
            cells = [spread(values, "{:+.4f}") if values.size else "" for values in chosen]
            lines.append([f"{placement}, {norm}", *cells])
    return markdown(["rise of the loss", "first norm", "a norm of a block, mean", "final norm", "all at once"], *lines)


def picture(runs):
    panels = []
    for placement, names in PLACEMENTS.items():
        blocks, final, _ = parts(runs, placement, "layernorm")
        places = [f"{block} {name}" for block in range(1, blocks.shape[1] + 1) for name in names]
        last = ["the final norm"] * final.shape[1]
        panels.append(Panel(placement, "nats per character", runs.lines("rises", NORMS, norm_placement=placement),
                            x=(", then ".join(["norms of blocks", *last]), places + last)))
    return picture_of("The rise of the loss with one norm frozen", panels)

"""Noci et al. 2022: the tokens of a deep post-norm become one vector, unless branches weigh less."""

from papers.lib.experiment import (THEORY, Claim, Panel, depths, fresh, learns, loss_table,
                                   picture_of, predicted, stays_at_unigram, table_of, token_cosine)

SCALES = {"branches × 1": {"branch_scale": "1"}, "branches × L^-½": {"branch_scale": "L^-0.5"}}
DEPTHS = depths(6, 12, 24, 48)


def measure(run):
    """The cosine of two tokens of a sequence before training, and by theory, layers 0..L; the amplification."""
    theory = predicted(run)
    return {"tokens": token_cosine(fresh(run)), "law": theory["tokens"], "amplification": theory["amplification"]}


def claims(runs):
    distances = [abs(cosine - law) for row in runs.rows for cosine, law in zip(row["tokens"], row["law"])]
    yield Claim("cosine of two tokens less theory's: the worst layer of all models", max(distances), 0, 0.05)
    for scale, depth, low, high in (
            ("branches × 1", "L 6", 0.8, 0.95), ("branches × 1", "L 12", 0.97, 1), ("branches × 1", "L 48", 0.99, 1),
            ("branches × L^-½", "L 6", 0.15, 0.3), ("branches × L^-½", "L 48", 0.15, 0.3)):
        yield Claim(f"{scale}, {depth}: cosine of two tokens after the last block",
                    runs.measured("tokens", **SCALES[scale], **DEPTHS[depth])[0, -1], low, high)
    for depth in ("L 12", "L 24", "L 48"):
        yield stays_at_unigram(f"branches × 1, {depth}", runs.loss(branch_scale="1", **DEPTHS[depth]))
    for depth, values in DEPTHS.items():
        yield learns(f"branches × L^-½, {depth}", runs.loss(branch_scale="L^-0.5", **values))


def table(runs):
    def cell(**values):
        (row,) = runs.where(**values)
        return f"{row['tokens'][-1]:.3f}, {row['law'][-1]:.3f}; {row['amplification']:.3g}"

    cosines = table_of(runs, "cosine of two tokens after the last block, its theory; A", cell, SCALES, DEPTHS)
    return cosines + "\n" + loss_table(SCALES, DEPTHS)(runs)


def picture(runs):
    panels = [Panel(scale, "", runs.lines("tokens", DEPTHS, "law", **own)) for scale, own in SCALES.items()]
    return picture_of("Cosine of two tokens, post-norm before training", panels, THEORY, points=True)

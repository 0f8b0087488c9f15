"""The newest weights of a run folder, by the rule of `normscope eval` and `normscope sample`."""

import math
from pathlib import Path

from lib.base.command import ScriptError, printable
from lib.logs import safetensors_io
from lib.logs.runs import Run
from lib.logs.sites import first_nonfinite

FILES = ("model.safetensors", "checkpoint.safetensors", "best.safetensors")
PARTS = ("embed", "embed_norm", "blocks", "final_norm", "head")  # with which names of a model's weights begin


def newest_weights(path):
    """(file, tensors, metadata) of a file, or of a run folder's file of the latest step, at a tie the first of FILES.
    ScriptError: a damaged file, a run without weights, or no run."""
    path = Path(path)
    if not path.is_dir():
        return path, *safetensors_io.read(path)
    files = [path / name for name in FILES if (path / name).exists()]
    if not files:
        run = Run(path)
        why = f"none of {', '.join(FILES)}; a run stopped by a signal, or at its first checkpoint, has some"
        if tensor := first_nonfinite(run):
            why = f"it diverged at step {run.diverged_at()} ({tensor} became non-finite), before its first checkpoint"
        raise ScriptError(f"[run] {run}: has no weights: {why}")
    file = max(files, key=step_of)
    return file, *safetensors_io.read(file)


def weights_among(tensors):
    """The weights among the tensors {name: array} of a checkpoint or an exchange file, which have others too."""
    return {name: array for name, array in tensors.items() if name.split(".")[0] in PARTS}


def kept_weights(run, step=None):
    """{step: file}, ascending, of the weights that checkpoint.keep_every kept in a run folder. ScriptError: there are
    none, or none of this step."""
    files = {file.stem.removeprefix("step_"): file for file in Path(run, "weights").glob("step_*.safetensors")}
    kept = {number: files[str(number)] for number in sorted(int(text) for text in files if text.isdecimal())}
    if not kept:
        raise ScriptError(f"[run] {printable(run)}: keeps no weights; train it with checkpoint.keep_every=N")
    if step not in (None, *kept):
        raise ScriptError(f"[run] {printable(run)}: keeps no weights of step {step}; it has those of steps "
                          f"{', '.join(map(str, kept))}")
    return kept


def step_of(file):
    """The finished steps behind the weights of a file of a run, of which only the header is read."""
    step = str(safetensors_io.read_metadata(file).get("step", ""))
    if not step.isdecimal():
        raise safetensors_io.damaged(file, f"metadata 'step' is {step!r}; expected a number")
    return int(step)


def branch_progress(config, metadata):
    """s/T at step s of a run with train.branch_warmup_steps = T: the branches of block l are multiplied by min(s/(T l),
    1). Infinite without such a warm-up; before the first step it is that of the first."""
    warmup_steps = config.get("train", {}).get("branch_warmup_steps", 0)
    return max(1, int(metadata.get("step", 0))) / warmup_steps if warmup_steps else math.inf

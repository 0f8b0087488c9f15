"""Markdown tables for the page of configs/papers.

Lines and columns of a table, and lines and panels of a picture, are {name: {key: value}}: the runs that have these
values.
"""

import re

from lib.base.tables import markdown_table
from lib.logs import np


def markdown(header, *lines):
    """A table; hyphens before numbers become minus signs."""
    return re.sub(r"(?<![\w.])-(?=\d)", "−", markdown_table([header, *lines]))


def spread(values, form="{:.3f}"):
    """Mean ± standard deviation over seeds."""
    values = np.array(values, float)
    if not np.isfinite(values).all():
        return "diverged"
    mean = form.format(values.mean())
    if len(values) == 1:
        return mean
    return f"{mean} ± {form.format(values.std(ddof=1)).replace('+', '')}"


def choices(key, *values, name="{}"):
    """Runs by the value of one key."""
    return {name.format(value): {key: value} for value in values}


def placements(*names):
    return choices("norm_placement", *names)


def depths(*values):
    return choices("n_layer", *values, name="L {}")


def rates(*values):
    return choices("lr", *values, name="lr {}")


def crossed(lines, others):
    """Runs that have the values of one of `lines` and of one of `others`."""
    return {f"{name}, {other}": {**line, **values} for name, line in lines.items() for other, values in others.items()}


def table_of(runs, title, cell, lines, columns, *more):
    """A table of cell(**values), empty where no run has the values of line and column. `more`: (cell, lines) of further
    lines."""
    def text(cell, values):
        return cell(**values) if runs.matching(**values) else ""

    return markdown([title, *columns], *(
        [name, *(text(cell, {**line, **column}) for column in columns.values())]
        for cell, lines in ((cell, lines), *more) for name, line in lines.items()))


def loss_table(lines, columns=None, against=None):
    """The function table(runs): final validation losses. `against`: the name of the line whose difference from each
    other line is shown too, seed by seed, ± its standard error."""
    columns = columns or {"": {}}
    others = {f"{name} − {against}": line for name, line in lines.items() if against not in (None, name)}

    def table(runs):
        def loss(**values):
            return spread(runs.losses(**values))

        def difference(**values):
            return runs.paired(values, {**values, **lines[against]})["difference"]

        return table_of(runs, "validation loss", loss, lines, columns, (difference, others))

    return table

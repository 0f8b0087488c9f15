"""Tables of rows of cells, which are texts; the first row is the titles."""

import csv
import io
import re
import shutil


def text_table(rows):
    """The lines of a table whose columns are separated by two blanks."""
    lines = [""] * len(rows)
    for index, (column, is_right) in enumerate(zip(zip(*rows), are_right(rows))):
        width = max(map(len, column))
        for row, cell in enumerate(column):
            lines[row] += ("  " if index else "") + (cell.rjust(width) if is_right else cell.ljust(width))
    return [line.rstrip() for line in lines]


def are_right(rows):
    """For each column whether it is aligned to the right: all but the first that hold nothing but numbers."""
    def is_number(cell):
        return cell == "" or cell in ("nan", "inf") or cell[0] in "0123456789+-≤"

    first, *columns = zip(*rows)
    return [False, *(all(map(is_number, column[1:] or column)) for column in columns)]


def print_table(rows, indent=""):
    """Prints a table and an empty line. On a terminal, columns that do not fit into the width follow below, after the
    first column again."""
    width, fitting = shutil.get_terminal_size((1000, 24)).columns, len(rows[0])
    while fitting > 2 and max(map(len, text_table([row[:fitting] for row in rows]))) + len(indent) > width:
        fitting -= 1
    print(*(indent + line for line in text_table([row[:fitting] for row in rows])), "", sep="\n")
    if rows[0][fitting:]:
        print_table([[row[0], *row[fitting:]] for row in rows], indent)


def markdown_table(rows):
    """The table in Markdown, in which a | of a cell is written as \\|; markdown_cells() reads a row of it."""
    head, *body = ("| " + " | ".join(str(cell).replace("|", r"\|") for cell in row) + " |\n" for row in rows)
    return head + "|---" * len(rows[0]) + "|\n" + "".join(body)


def markdown_cells(line):
    """The cells of a row of a table in Markdown."""
    return [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]


def csv_text(rows):
    """The table as CSV; cells may be numbers."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def print_csv(rows):
    """Prints the table as CSV."""
    print(csv_text(rows), end="")

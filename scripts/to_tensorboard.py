#!/usr/bin/env python3
"""Writes runs as TensorBoard event files: the columns of metrics.csv, and the rms of the residual stream's activation
and gradient at each layer. It writes the format itself, so that neither TensorFlow nor PyTorch is needed; `tensorboard
--logdir DIR` shows them. For Weights & Biases see scripts/README.md."""

import csv
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.base.command import Parser, main, printable
from lib.base.files import write_atomically
from lib.logs.runs import find_runs
from lib.logs.sites import Site

SKIPPED = ("step", "tokens", "seconds")  # columns that are axes, not curves


def crc32c_table():
    """Castagnoli's polynomial, reflected, by byte."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc32c_table()


def masked_crc(data):
    """TFRecord's checksum: CRC-32C, rotated and with a constant added."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data):
    """A TFRecord: length, its checksum, data, its checksum."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def varint(value):
    """A protocol buffer's whole number."""
    out = b""
    while value >= 128:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number, data):
    """A protocol buffer's field of bytes."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def event(step, scalars):
    """An Event message with a Summary of {tag: value}; its wall time is the step, so that files are the same every
    time."""
    values = b"".join(field(1, field(1, tag.encode()) + b"\x15" + struct.pack("<f", value))
                      for tag, value in scalars.items())
    return b"\x09" + struct.pack("<d", step) + b"\x10" + varint(step) + field(5, values)


def scalars_of(run):
    """{step: {tag: value}} of a run."""
    rows = {}
    if (run.folder / "metrics.csv").exists():
        with open(run.folder / "metrics.csv", encoding="utf-8") as file:
            columns = next(csv.reader(file), [])
        for row in run.rows("metrics.csv", columns, "train it", some=False):
            row = dict(zip(columns, row))
            rows.setdefault(int(row["step"]), {}).update(
                {name: value for name, value in row.items() if name not in SKIPPED and value == value})
    if (run.folder / "layers.csv").exists():
        stream = Site(run)
        for kind, by_step in (("stream_rms", stream.rms), ("stream_grad_rms", stream.grad)):
            for step, values in zip(stream.steps, by_step):
                rows.setdefault(int(step), {}).update(
                    {f"{kind}/{layer:03}": value for layer, value in enumerate(values)})
    return rows


def run():
    """Reads the command line and writes a folder of events for each run."""
    parser = Parser("tensorboard", __doc__)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run, probe or sweep folder")
    parser.add_argument("-o", "--output", metavar="DIR", required=True, type=Path,
                        help="folder for TensorBoard's --logdir")
    args = parser.parse_args()
    for logged in find_runs(args.runs, "config.json"):
        folder = args.output / Path(*[part for part in logged.folder.parts if part not in ("/", "..", ".")])
        folder.mkdir(parents=True, exist_ok=True)
        content = record(b"\x09" + struct.pack("<d", 0) + field(3, b"brain.Event:2"))
        content += b"".join(record(event(step, scalars)) for step, scalars in sorted(scalars_of(logged).items()))
        write_atomically(folder / "events.out.tfevents.0.normscope", content)
        print(f"wrote {printable(folder)}")


if __name__ == "__main__":
    main(run, "tensorboard")

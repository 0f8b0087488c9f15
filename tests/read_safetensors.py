#!/usr/bin/python3
"""Reads a safetensors file with nothing of normscope's: prints every tensor, verifies the layout and the checksum.

usage: read_safetensors.py FILE [--need-checksum]

One line a tensor: name, dtype, shape, sum. Exit 1 and a line on stderr if anything is wrong with the file.
"""

import json
import math
import struct
import sys

import numpy as np

DTYPES = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "BF16": "<u2"}


class Fault(Exception):
    pass


def fnv1a(data, state=0xCBF29CE484222325):
    for byte in data:
        state = (state ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return state


def no_name_twice(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise Fault("a name occurs twice in the header")
    return dict(pairs)


def verify_checksum(data, digits):
    computed = f"{fnv1a(data):016x}"
    if computed != digits:
        raise Fault(f"checksum {digits}; the data give {computed}")


def values_of(raw, dtype):
    values = np.frombuffer(raw, DTYPES[dtype])
    if dtype == "BF16":  # the upper half of a float32
        values = (values.astype("<u4") << 16).view("<f4")
    return values


def read(path, need_checksum):
    with open(path, "rb") as file:
        content = file.read()
    if len(content) < 8:
        raise Fault("shorter than 8 bytes")
    (length,) = struct.unpack("<Q", content[:8])
    header, data = content[8 : 8 + length], content[8 + length :]
    if len(header) != length:
        raise Fault("the header is cut short")
    entries = json.loads(header, object_pairs_hook=no_name_twice)
    metadata = entries.pop("__metadata__", {})
    if not all(isinstance(value, str) for value in metadata.values()):
        raise Fault("a metadata value is not a string")

    end_before = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        dtype, shape = entry["dtype"], entry["shape"]
        if begin != end_before or end > len(data):
            raise Fault(f"{name}: bytes {begin} to {end} after {end_before}, of {len(data)}")
        if end - begin != math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize:
            raise Fault(f"{name}: {end - begin} bytes for {dtype} {shape}")
        if (8 + length + begin) % np.dtype(DTYPES[dtype]).itemsize:
            raise Fault(f"{name}: not aligned")
        values = values_of(data[begin:end], dtype)
        print(f"{name} {dtype} {tuple(shape)} {values.sum(dtype=None if dtype == 'I64' else np.float64)!r}")
        end_before = end
    if end_before != len(data):
        raise Fault(f"{len(data) - end_before} bytes belong to no tensor")

    if "checksum" in metadata:
        verify_checksum(data, metadata["checksum"])
        print(f"checksum {metadata['checksum']} verified")
    elif need_checksum:
        raise Fault("no checksum")


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--need-checksum"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    try:
        read(arguments[0], "--need-checksum" in sys.argv)
    except (Fault, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        sys.exit(f"[read_safetensors] {arguments[0]}: {error!r}")


if __name__ == "__main__":
    main()

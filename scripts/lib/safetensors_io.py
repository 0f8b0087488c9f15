"""Reads and writes safetensors files: 8 bytes of header length, a JSON header, then the tensors' bytes."""

import json
import math
import struct

import numpy as np

from lib.files import write_atomically

DTYPES = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8"), "I64": np.dtype("<i8")}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def read(path):
    """The file's tensors as {name: array} and its metadata as {key: string}; ValueError if it is damaged."""
    with open(path, "rb") as file:
        data = file.read()
    if len(data) < 8:
        raise ValueError(f"[safetensors] {path}: {len(data)} bytes; not even a header length")
    start = 8 + struct.unpack("<Q", data[:8])[0]
    if start > len(data):
        raise ValueError(f"[safetensors] {path}: the header ends at byte {start}, the file at {len(data)}")
    try:
        header = json.loads(data[8:start])
        metadata = header.pop("__metadata__", {})
        body = memoryview(data)[start:]  # not bytes: each slice of those is a copy
        tensors = {name: _tensor(body, entry) for name, entry in header.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"[safetensors] {path}: damaged header: {error}") from error
    return tensors, metadata


def _tensor(data, entry):
    begin, end = entry["data_offsets"]
    shape, dtype = entry["shape"], DTYPES[entry["dtype"]]
    if not 0 <= begin <= end <= len(data) or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"bytes {begin} to {end} of {len(data)} cannot hold {entry['dtype']} {shape}")
    return np.frombuffer(data[begin:end], dtype).reshape(shape).copy()


def write(path, tensors, metadata=None):
    """Writes {name: array} in the order given, and the metadata {key: string}."""
    header, chunks, offset = {"__metadata__": metadata} if metadata else {}, [], 0
    for name, array in tensors.items():
        array = np.ascontiguousarray(array)
        chunks.append(array.astype(array.dtype.newbyteorder("<")).tobytes())
        end = offset + len(chunks[-1])
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the data starts at a multiple of 8
    write_atomically(path, struct.pack("<Q", len(text)) + text + b"".join(chunks))

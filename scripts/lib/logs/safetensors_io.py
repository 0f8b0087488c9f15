"""Reads and writes safetensors files: 8 bytes of header length, a JSON header, then the tensors' bytes."""

import json
import math
import struct

import numpy as np

from lib.base.command import ScriptError, printable
from lib.base.files import write_atomically

DTYPES = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8"), "I64": np.dtype("<i8"), "BF16": np.dtype("<u2")}
LONGEST_HEADER = 100_000_000  # bytes; the format's own limit
HEX_DIGITS = 16  # of the data's checksum, and of the header's
NAMES = {dtype: name for name, dtype in DTYPES.items() if name != "BF16"}  # of what is written


def read(path):
    """The file's tensors as {name: array} and its metadata as {key: string}. ScriptError: the header is damaged, or
    tensors do not fit the file. The checksum of the data, which is slow in Python, is the program's to verify."""
    with open(path, "rb") as file:
        header = _header(file, path)
        body = memoryview(file.read())  # not bytes: each slice of those is a copy
    try:
        metadata = header.pop("__metadata__", {})
        return {name: _tensor(body, entry) for name, entry in header.items()}, metadata
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(path, f"damaged header: {error}") from None


def damaged(path, what):
    """The error of a damaged file."""
    return ScriptError(f"[safetensors] {printable(path)}: {printable(what)}", 1)


def read_metadata(path):
    """The metadata {key: string} of a file, of which only the header is read. ScriptError: that is damaged."""
    with open(path, "rb") as file:
        return _header(file, path).get("__metadata__", {})


def parsed(path, metadata, key, kind=dict):
    """The JSON in a member of a file's metadata. ScriptError: there is none of this kind."""
    try:
        value = json.loads(metadata[key])
    except (KeyError, TypeError, ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise ScriptError(f"{printable(path)}: no {key} in its metadata; expected a run, or a file that normscope "
                          "wrote", 1)
    return value


def _header(file, path):
    """The JSON object at the beginning of an open file."""
    length = file.read(8)
    if len(length) < 8:
        raise damaged(path, f"{len(length)} bytes; not even a header length")
    size = struct.unpack("<Q", length)[0]
    text = file.read(size) if size <= LONGEST_HEADER else b""
    if len(text) < size:
        raise damaged(path, f"a header of {size} bytes does not fit the file, or is none")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"damaged header: {error}") from None
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__", {}), dict):
        raise damaged(path, "damaged header: it is not a JSON object with an object of metadata")
    _check_header(text, str(header.get("__metadata__", {}).get("checksum")), path)
    return header


def _check_header(text, checksum, path):
    """ScriptError: the second half of the checksum (src/io/safetensors.h) is not that of the header."""
    half, begin = HEX_DIGITS, text.find(checksum.encode())
    blank = text[:begin + half] + b"0" * half + text[begin + 2 * half:]
    if len(checksum) == 2 * half and (begin < 0 or f"{fnv1a(blank):016x}" != checksum[half:]):
        raise damaged(path, "the checksum of the header does not match; the file is damaged, or was changed by a "
                            "program that kept the old checksum")


def fnv1a(content):
    """FNV-1a, 64 bits, of bytes, as fnv1a() in src/engine/core/random.h has it."""
    state = 0xCBF29CE484222325
    for byte in content:
        state = (state ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return state


def _tensor(data, entry):
    begin, end = entry["data_offsets"]
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"dtype {entry['dtype']}; expected one of {', '.join(DTYPES)}")
    shape, dtype = entry["shape"], DTYPES[entry["dtype"]]
    if not 0 <= begin <= end <= len(data) or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"bytes {begin} to {end} of {len(data)} cannot hold {entry['dtype']} {shape}")
    numbers = np.frombuffer(data[begin:end], dtype).reshape(shape)
    if entry["dtype"] == "BF16":  # the upper half of a float32
        return (numbers.astype("<u4") << 16).view("<f4")
    return numbers.copy()


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

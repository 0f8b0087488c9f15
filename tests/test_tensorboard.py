#!/usr/bin/python3
"""scripts/to_tensorboard.py: event files, read back by a reader of their format written here."""

import struct
import unittest

from made_runs import MadeRuns

import to_tensorboard


def records(content):
    """The records of a TFRecord file, whose lengths and checksums hold."""
    entries = []
    while content:
        (length,), (of_length,) = struct.unpack("<Q", content[:8]), struct.unpack("<I", content[8:12])
        data, (of_data,) = content[12:12 + length], struct.unpack("<I", content[12 + length:16 + length])
        assert (of_length, of_data) == tuple(map(to_tensorboard.masked_crc, (content[:8], data)))
        entries.append(data)
        content = content[16 + length:]
    return entries


def fields(data):
    """[(number, value)] of a protocol buffer's message."""
    def varint():
        nonlocal data
        value = shift = 0
        while True:
            byte, data = data[0], data[1:]
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    values = []
    while data:
        key = varint()
        if key & 7 == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            value, data = data[:size], data[size:]
            value = struct.unpack("<d" if size == 8 else "<f", value)[0] if key & 7 in (1, 5) else value
        values.append((key >> 3, value))
    return values


class TensorBoard(MadeRuns):
    def test_checksum_is_the_published_one(self):
        rotated = (to_tensorboard.masked_crc(b"123456789") - 0xA282EAD8) & 0xFFFFFFFF
        self.assertEqual((rotated << 15 | rotated >> 17) & 0xFFFFFFFF, 0xE3069283)

    def test_what_is_written_is_what_was_logged(self):
        self.make("runs/a", diverged=True)
        self.make("runs/p/seed-1", steps=(0,), probe=True)
        done = self.call("to_tensorboard.py", "runs", "-o", "tb")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        first, *events = map(dict, map(fields, records((self.root / "tb/runs/a/events.out.tfevents.0.normscope").read_bytes())))
        self.assertEqual(first[3], b"brain.Event:2")
        self.assertEqual([event[2] for event in events], [1, 10, 20, 30, 40, 50, 60])
        summaries = [{dict(fields(value))[1].decode(): dict(fields(value))[2] for _, value in fields(event[5])} for event in events]
        self.assertEqual(summaries[3]["val_loss"], 2)
        self.assertNotIn("val_loss", summaries[0])
        self.assertAlmostEqual(summaries[1]["train_loss"], 1.7, places=6)
        self.assertEqual([summaries[1][f"stream_rms/{layer:03}"] for layer in range(4)], [1, 2, 3, 4])
        self.assertAlmostEqual(summaries[1]["stream_grad_rms/002"], 1.1e-3)
        _, probe = records((self.root / "tb/runs/p/seed-1/events.out.tfevents.0.normscope").read_bytes())
        self.assertEqual(len(fields(dict(fields(probe))[5])), 8)


if __name__ == "__main__":
    unittest.main()

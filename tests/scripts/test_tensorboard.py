#!/usr/bin/python3
"""scripts/to_tensorboard.py: the records and messages of event files, read back by their published formats."""

import re
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


def event(data):
    """(step, {tag: value}) of an Event: a double, which is the step; the step, below 128; a Summary of values."""
    step = int(struct.unpack("<d", data[1:9])[0])
    assert data.startswith(b"\x09") and data[9:12] == bytes([0x10, step, 0x2A]), data
    pairs = re.findall(rb"\x0a.([\w/]+)\x15(.{4})", data, re.DOTALL)
    return step, {tag.decode(): struct.unpack("<f", value)[0] for tag, value in pairs}


class TensorBoard(MadeRuns):
    def test_checksums_and_whole_numbers_are_the_published_ones(self):
        rotated = (to_tensorboard.masked_crc(b"123456789") - 0xA282EAD8) & 0xFFFFFFFF
        self.assertEqual((rotated << 15 | rotated >> 17) & 0xFFFFFFFF, 0xE3069283)
        self.assertEqual(to_tensorboard.varint(300), b"\xAC\x02")

    def test_events_are_the_rows_of_the_logs(self):
        self.make("runs/a", diverged=True)
        self.make("runs/p/seed-1", steps=(0,), probe=True)
        done = self.call("to_tensorboard.py", "runs", "-o", "tb")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        first, *others = records((self.root / "tb/runs/a/events.out.tfevents.0.normscope").read_bytes())
        self.assertIn(b"brain.Event:2", first)
        events = dict(map(event, others))
        self.assertEqual(list(events), [1, 10, 20, 30, 40, 50, 60])
        self.assertEqual((events[30]["val_loss"], "val_loss" in events[1]), (2, False))
        self.assertAlmostEqual(events[10]["train_loss"], 1.7, places=6)
        self.assertEqual([events[10][f"stream_rms/{layer:03}"] for layer in range(4)], [1, 2, 3, 4])
        self.assertAlmostEqual(events[10]["stream_grad_rms/002"], 1.1e-3)
        _, probe = records((self.root / "tb/runs/p/seed-1/events.out.tfevents.0.normscope").read_bytes())
        self.assertEqual(len(event(probe)[1]), 8)


if __name__ == "__main__":
    unittest.main()

"""How daisy cuts a box into blocks.

Reads lines of JSON: fit, and offset and shape of the total box, of what a block reads, and of what it writes. Answers each with
a line `BLOCKS <json>`: the number, what is read and what is written, of all blocks; or `ERROR`, if daisy refuses.
"""

import json
import sys

from daisy.v2 import BlockwiseDependencyGraph, Roi

for line in sys.stdin:
    fit, total, read, write = json.loads(line)
    try:
        total, read, write = Roi(*total), Roi(*read), Roi(*write)
        graph = BlockwiseDependencyGraph("t", read, write, False, fit, total_read_roi=total)
        blocks = [block for block, _ in graph.enumerate_all_dependencies()]
    except BaseException as error:  # it panics, too
        print("ERROR", error, flush=True)
        continue
    boxes = [
        [block.block_id[1], *([list(roi.offset), list(roi.shape)] for roi in (block.read_roi, block.write_roi))]
        for block in blocks
    ]
    print("BLOCKS", json.dumps(boxes), flush=True)

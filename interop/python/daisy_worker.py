"""A worker of daisy, unchanged, told by DAISY_CONTEXT where its server is.

daisy_worker.py [--plan DEED,...] [--by-id] [--quiet]

What it does with its blocks comes from the plan, by turns: `good`; `failed`, which sets the status; `raise`, which lets an
exception through; `say:TEXT`, which fails with this text; `hold`, which keeps the block until standard input ends. With
--by-id the deed depends on the number of the block. It says CONNECTED, and begins when it is told a line. Each block that it gets is printed as `BLOCK <what it is> <deed>`, the end
as `DONE <blocks> <seconds since the first>`.
"""

import argparse
import sys
import time

import daisy
from daisy.logging import set_log_basedir, set_log_level, set_log_mode


def say(*words):
    print(*words, flush=True)


def plain(roi):
    return f"{list(roi.offset)}+{list(roi.shape)}".replace(" ", "")


def main(plan, by_id, quiet):
    client = daisy.Client()
    # Failures are asked for here: what is written about them goes to files which nobody opens.
    set_log_basedir("unused")
    set_log_mode("file")
    set_log_level("CRITICAL")
    say("CONNECTED", client.connected)
    sys.stdin.readline()
    count, start = 0, time.monotonic()
    while True:
        try:
            with client.acquire_block() as block:
                if block is None:
                    break
                if count == 0:
                    start = time.monotonic()
                deed = plan[(block.block_id[1] if by_id else count) % len(plan)]
                count += 1
                if not quiet:
                    say("BLOCK", *block.block_id, plain(block.read_roi), plain(block.write_roi), deed)
                if deed == "hold":
                    sys.stdin.read()
                elif deed == "failed":
                    block.status = daisy.BlockStatus.FAILED
                elif deed == "raise":
                    raise RuntimeError("raised")
                elif deed.startswith("say:"):
                    # Below the context manager, which sends a traceback. What that sends afterwards must not be heard.
                    client._client.report_failure(block._native, deed.removeprefix("say:"))
        except RuntimeError as error:
            if str(error) != "raised":
                raise
    say("DONE", count, time.monotonic() - start)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--plan", type=lambda plan: plan.split(","), default=["good"])
    parser.add_argument("--by-id", action="store_true")
    parser.add_argument("--quiet", action="store_true")
    main(**vars(parser.parse_args()))

"""The server of daisy, unchanged, with workers from elsewhere.

daisy_server.py REPORT TASKS

TASKS is a list in JSON, of objects with the arguments of `daisy.Task`, and `after`: the names of tasks that come before. For
each worker that it wants it starts a process which connects to REPORT, HOST:PORT, says its DAISY_CONTEXT, and stays until
that connection is closed: what works meanwhile counts as this worker. At the end it prints `STATES <json>`, or
`FAILED <why>`.
"""

import json
import os
import resource
import sys

import daisy
from daisy.logging import set_log_basedir

COUNTS = "total_block_count completed_count failed_count orphaned_count worker_start_count abandoned".split()


def main(report, tasks):
    # It is killed by its own abort in some tests.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    set_log_basedir(None)
    host, port = report.split(":")

    def worker():
        import os
        import socket

        with socket.create_connection((host, int(port))) as told:
            told.sendall(os.environ["DAISY_CONTEXT"].encode() + b"\n")
            told.recv(1)

    made = {}
    edges = []
    for task in tasks:
        after = task.pop("after", [])
        for roi in ("total_roi", "read_roi", "write_roi"):
            task[roi] = daisy.Roi(*task[roi])
        name = task["task_id"]
        made[name] = daisy.v2.Task(process_function=worker, **task)
        edges += [(made[earlier], made[name]) for earlier in after]
    pipeline = daisy.Pipeline(list(made.values()), edges)
    # It writes about each block that fails; what is asked for here is how it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        states = daisy.Server().run_blockwise(pipeline, progress=False, summary=False, host="127.0.0.1")
    except BaseException as error:  # it panics, too
        print("FAILED", error, flush=True)
        sys.exit(1)
    counts = {name: {count: getattr(state, count) for count in COUNTS} for name, state in states.items()}
    print("STATES", json.dumps(counts), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))

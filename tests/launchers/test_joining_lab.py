"""Three reasons in one real job not to start, each with its own sentence: another MASTER_ADDR, a port
that a firewall drops, a node that starts nothing.
"""

from __future__ import annotations

import sys

from tests.support.lab import Cluster, wait_until

PORT = 29577
RANK = """
import os, pathlib, sys
import torch.distributed as dist
folder = pathlib.Path(sys.argv[1])
os.environ["RANK"], os.environ["WORLD_SIZE"] = os.environ["SLURM_PROCID"], "4"
(folder / f"at.{os.environ['RANK']}").touch()
dist.init_process_group("gloo")
"""
# On n4 the set-up before the training never comes to an end.
SCRIPT = """
export OMP_NUM_THREADS=1 MASTER_ADDR=n1 MASTER_PORT={port}
srun bash -c '[ $SLURMD_NODENAME != n4 ] || exec sleep 600; exec {python} {program} {folder}'
"""


def test_each_reason_not_to_start_is_named(cluster: Cluster) -> None:
    folder = cluster.folder / "start-up"
    folder.mkdir()
    program = folder / "rank.py"
    program.write_text(RANK)
    # On n3 the name of the first node leads to the second one.
    hosts = folder / "hosts.n3"
    own = (cluster.folder / "hosts").read_text()
    hosts.write_text(own.replace("10.77.0.1 n1", "10.77.0.2 n1"))
    cluster.node("exec", "n3", "mount", "--bind", str(hosts), "/etc/hosts")
    # The answers of the store to n2 are dropped.
    rule = ["to", "10.77.0.2", "ipproto", "tcp", "sport", str(PORT), "blackhole"]
    cluster.node("exec", "n1", "ip", "rule", "add", *rule)
    script = SCRIPT.format(port=PORT, python=sys.executable, program=program, folder=folder)
    job = cluster.submit("-N4", "--ntasks-per-node=1", script=script)
    try:
        wait_until(lambda: len(list(folder.glob("at.*"))) == 3, "three ranks are in set-up", 100)
        found = None

        def all_named() -> bool:
            nonlocal found
            found = cluster.dump("--jobid", job)
            return len(found["causes"]) == 3

        wait_until(all_named, "each reason is found", 60)
        assert found is not None
        said = {tuple(cause["ranks"]): cause for cause in found["causes"]}
        assert {cause["kind"] for cause in found["causes"]} == {"start_stall"}
        assert (
            f"cannot reach the store at n1:{PORT} (10.77.0.1): no answer in" in said[1,]["summary"]
        )
        assert f"looks for the store at n1:{PORT} (10.77.0.2);" in said[2,]["summary"]
        assert said[3,]["summary"].startswith("Rank 3 never started: n4 has no process of this job")
        evidence = [fact["says"] for fact in said[1,]["evidence"]]
        store = f"1 of 4 ranks have reached the store at n1:{PORT}; missing: ranks 1-3"
        assert store in evidence
    finally:
        cluster.login("scancel", job)
        cluster.node("exec", "n1", "ip", "rule", "del", *rule)
        cluster.node("exec", "n3", "umount", "/etc/hosts")

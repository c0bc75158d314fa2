"""Words of devices, links and frameworks that tell a first failure, or that something else had come first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

LIMIT = "[Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1804977 milliseconds before timing out.\n"


def test_a_gpu_that_lspci_sees_no_more_is_the_reason_of_the_waits_above(tmp_path: Path) -> None:
    card = "{0}:00.{1} {2} controller: NVIDIA Corporation GA102 [RTX A6000] (rev {3})\n"
    kinds = [("0", "VGA compatible"), ("2", "USB")]
    rows = "".join(
        card.format(at, n, k, rev) for at, rev in (("3b", "a1"), ("5e", "ff")) for n, k in kinds
    )
    said = diagnosed(tmp_path, LIMIT.format(1) + LIMIT.format(2) + rows)
    assert said.status == "failed" and "the GPU 5e:00.0 does not answer on its bus any more" in (
        said.summary
    )
    assert [c.kind for c in diagnosed(tmp_path, rows.replace("ff", "a1")).causes] == []


def test_channels_that_were_lost_for_an_earlier_error(tmp_path: Path) -> None:
    line = "kernel: NVRM: Xid (PCI:0000:{0}:00): 45, pid=18{1}, name=python3, Ch 00000001 caused by previous Xid {1}\n"
    said = diagnosed(tmp_path, line.format("dc", 149) + line.format("ed", 145))
    assert "The GPU 0000:dc:00 reports an NVLink error (Xid 149)" in said.summary
    assert "memory access" in diagnosed(tmp_path, line.format("dc", 31)).summary


def test_a_memory_error_that_was_only_logged_before_what_the_launcher_raised(
    tmp_path: Path,
) -> None:
    text = (
        "2026-11-07 03:18:42 | WARNING | fairseq.trainer | OOM: Ran out of memory with exception: CUDA out of memory. "
        "Tried to allocate 28.00 MiB (GPU 1; 10.92 GiB total capacity)\n"
        "2026-11-07 03:18:42 | WARNING | fairseq.trainer | attempting to recover from OOM in forward/backward pass\n"
        'Traceback (most recent call last):\n  File "/app/cli.py", line 33, in <module>\n    spawn(main)\n'
        '  File "/v/site-packages/torch/multiprocessing/spawn.py", line 171, in spawn\n    wh\n'
    )
    said = diagnosed(tmp_path, text)
    assert "GPU 1" in said.summary and "the GPU's memory is full" in said.summary


@pytest.mark.parametrize(
    ("text", "kind", "node", "words"),
    [
        (
            "not ready endpoints:['10.1.0.7:6070', '10.1.0.7:6071']\nserver not ready, wait 3 sec to retry...\n"
            * 3,
            "start_stall",
            "10.1.0.7",
            "had not opened their ports",
        ),
        (
            " 2 /usr/lib/libucs.so.0(+0x31d16) [0x15]\n[n3:4938] *** Process received signal",
            "dead",
            "n3",
            "Process 4938 on n3 failed first",
        ),
        (
            "GPU 00000000:04:00.0: Detected Critical Xid Error\nTraceback (most recent call last):\n"
            '  File "/app/train.py", line 9, in <module>\n    main()\n',
            "error",
            "",
            "A critical Xid error of the GPU 00000000:04:00.0 was seen",
        ),
        (
            "F0000 00:00:17 9049 pjrt_computation_client.cc:487] Non-OK-status: status: INTERNAL: Accelerator device halted prematurely\n",
            "error",
            "",
            "the TPU halted in the middle of a computation",
        ),
        (
            "RuntimeError: CUDA error: the launch timed out and was terminated\n",
            "error",
            "",
            "a kernel ran longer than the GPU's driver lets one run",
        ),
        (
            "2026:05:23-19:04:20:(168955) |CCL_ERROR| atl_ofi_helper.cpp:1635 atl_ofi_open_nw_provs: can not open network providers\n"
            "[n7:168955:0:168955] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)\n",
            "error",
            "",
            "oneCCL could not open a network provider",
        ),
        (
            "[1657786922.147458] [n1:12074:0]            sock.c:260  UCX  ERROR   connect(fd=41, dest_addr=172.17.0.1:45031) failed: Connection refused\n"
            'Traceback (most recent call last):\n  File "/app/convert.py", line 109, in <module>\n',
            "start_stall",
            "172.17.0.1,n1",
            "UCX could not connect there (Connection refused)",
        ),
        (
            "E0119 21:26:14.529606 16639 grpc_client.cc:119] proc param error:name:[fc_0.w_0@GRAD] ep:[172.17.0.5:6174] grpc error:Connect Failed\n"
            'Traceback (most recent call last):\n  File "/app/fit.py", line 70, in <module>\n',
            "unreachable",
            "172.17.0.5",
            "gRPC could not connect there",
        ),
        (
            "F20260306 12:52:30.421669 11024 ctrl_client.cpp:54] Check failed: GetStubAt(i)->Call() == OK (14 vs. 0) Machine 0 lost\n",
            "unreachable",
            "",
            "OneFlow lost the connection to machine 0",
        ),
        (
            "2026-11-11 21:05:26,575 - distributed.scheduler - WARNING - Removing worker 'tcp://10.0.0.3:40689' caused the cluster to lose already computed task(s)\n",
            "unreachable",
            "",
            "Dask's scheduler lost its worker tcp://10.0.0.3:40689",
        ),
        (
            "connect to (failed): [localhost]\n",
            "start_stall",
            "localhost",
            "could not connect to its tracker",
        ),
        (
            "org.apache.spark.SparkException: Job aborted due to stage failure: barrier task ResultTask(12, 7) finished unsuccessfully.\n"
            "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: Remote RPC client disassociated. Likely\n",
            "dead",
            "",
            "Spark lost its executor 1 (Remote RPC client disassociated)",
        ),
        (
            "[1695144496.484294] [n1:103648:0] ib_device.c:1250 UCX ERROR ibv_create_ah(dlid=49152 dgid=::ffff:10.16.0.55 sgid_index=3) for UD verbs connect on bnxt_re0 failed: Connection timed out\n"
            'Traceback (most recent call last):\n  File "/app/train.py", line 344, in <module>\n    main()\nRuntimeError: Runtime error: MPI_ERR_OTHER: known error not in list\n',
            "in_communication",
            "10.16.0.55,n1",
            "UCX found no way there over bnxt_re0",
        ),
        (
            "[rank1]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, unhandled system error\n[rank1]: Last error:\n"
            "[rank1]: Failed to open libnvidia-ml.so.1\n",
            "error",
            "",
            "the library of NVIDIA's driver",
        ),
        (
            "n1:14469:14595 [0] ibvwrap.c:106 NCCL WARN Call to ibv_reg_mr failed\n",
            "error",
            "n1",
            "could not register memory with its InfiniBand card",
        ),
        (
            'Traceback (most recent call last):\n  File "/v/rendezvous.py", line 120, in _handler\n    store = TCPStore()\nRuntimeError: connect() timed out.\n',
            "start_stall",
            "",
            "did not reach the rendezvous within its time limit",
        ),
        (
            "F1207 10:43:16.922251 3493939 rpc_server.cpp:134] Check failed: kv_.emplace(k, v).second \n*** Check failure stack trace: ***\n",
            "error",
            "",
            "a check of the program failed: kv_.emplace(k, v).second",
        ),
        (
            "x\n-------------- FATAL CALLED ---------------\nFATAL CALLED F",
            "error",
            "",
            "the model ended itself",
        ),
    ],
)
def test_their_own_words(tmp_path: Path, text: str, kind: str, node: str, words: str) -> None:
    said = diagnosed(tmp_path, text)
    [cause] = said.causes
    assert (cause.kind, cause.nodes) == (kind, [*filter(None, node.split(","))])
    assert words in said.summary


def test_a_rendezvous_without_its_leader(tmp_path: Path) -> None:
    """Who is gone does not show: the one that is not reached may have ended with the work done."""
    said = diagnosed(tmp_path, "Failed to connect to client mesh master: t1v-n-3.c.proj:38973\n")
    assert named(said) == []
    assert "did not reach the process that leads it t1v-n-3.c.proj:38973" in said.summary


WAITED = (
    'Process SpawnProcess-4:\nTraceback (most recent call last):\n  File "/app/train.py", line 9, in step\n'
    '    dist.all_reduce(stop)\n  File "/v/site-packages/torch/distributed/distributed_c10d.py", line 911, in all_reduce\n'
    "    work.wait()\nRuntimeError: Operation timed out!\n"
)
FLUSHED = (
    "[20:25:30] /src/rdma_van.h:777: Check failed: wc[i].status == IBV_WC_SUCCESS Failed status \n"
    "Work Request Flushed Error 5 1405 245 0\nterminate called after throwing an instance of 'dmlc::Error'\n"
    "  what():  [20:25:30] /src/rdma_van.h:777: Check failed: wc[i].status == IBV_WC_SUCCESS Failed status \n"
)


DEEPEP = (
    '[rank4]: Traceback (most recent call last):\n[rank4]:   File "/v/deep_ep/buffer.py", line 581, in internode_dispatch\n'
    "[rank4]:     self.runtime.internode_dispatch()\n[rank4]: RuntimeError: DeepEP error: timeout (dispatch CPU)\n"
)
LOGOUT = "step 7\ntimed out waiting for input: auto-logout\n"
RESERVED = "2026-10-25 15:35:58,881 INFO (MainThread-107) waiting for 2 reservations\n" * 5 + (
    'Traceback (most recent call last):\n  File "/app/mnist_spark.py", line 69, in <module>\n    run()\n'
)
LOST = WAITED.replace("Operation timed out!", "the remote side was lost: connection reset")


@pytest.mark.parametrize("text", [WAITED, LOST, FLUSHED, DEEPEP, LOGOUT, RESERVED])
def test_who_waited_or_lost_a_connection_is_no_first_failure(tmp_path: Path, text: str) -> None:
    assert named(diagnosed(tmp_path, text)) == []


def test_an_exception_of_a_call_that_tells_of_no_other_process_is_its_own(tmp_path: Path) -> None:
    own = WAITED.replace("Operation timed out!", "Tensors must be contiguous")
    assert named(diagnosed(tmp_path, own)) == [("error", [])]


LOGGING = (
    "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-03-25T10:34:07 DUE TO PREEMPTION ***\n--- Logging error ---\n"
    'Traceback (most recent call last):\n  File "/v/torch/distributed/elastic/agent/server/api.py", line 6, in run\n    time.sleep(1)\n'
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 3045 got signal: 15\nCall stack:\n"
    '  File "/v/bin/torchrun", line 6, in <module>\n    sys.exit(main())\n'
    "Message: 'Received %s death signal, shutting down workers'\nArguments: (<Signals.SIGTERM: 15>,)\n"
)


def test_a_message_that_was_not_logged_is_no_error(tmp_path: Path) -> None:
    said = diagnosed(tmp_path, LOGGING)
    assert named(said) == [] and "Slurm preempted the job" in said.summary


def test_what_a_watchdog_prints_later_is_no_end_of_a_torn_traceback(tmp_path: Path) -> None:
    torn = 'Traceback (most recent call last):\n  File "/app/model.py", line 167, in on_train_epoch_end\n    self.metric.compute()\n'
    lines = "".join(f"frame #{n}: <unknown function> + 0x{n:x} (0x14)\n" for n in range(40))
    said = diagnosed(
        tmp_path,
        torn + LIMIT.format(1) + lines + "libnvidia-ml.so.1: undefined symbol: nvmlDeviceGet\n",
    )
    assert "shared library" not in said.summary


def test_an_access_over_nvlink(tmp_path: Path) -> None:
    error = "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error"
    text = WAITED.replace("Operation timed out!", error)
    assert "another GPU's memory over NVLink failed" in diagnosed(tmp_path, text).summary


def test_warnings_of_a_library_are_no_failure(tmp_path: Path) -> None:
    line = "2026:04:02-03:30:40:(4119) |CCL_WARN| could not get local_idx/count from environment variables\n"
    assert named(diagnosed(tmp_path, line)) == []


def test_a_cut_traceback_below_a_cancel_is_no_first_failure(tmp_path: Path) -> None:
    cancel = "slurmstepd: error: *** STEP 7.0 ON n46 CANCELLED AT 2026-03-19T18:15:31 DUE TO PREEMPTION ***\n"
    cut = 'Traceback (most recent call last):\n  File "/v/submitit/core/_submit.py", line 11, in <module>\n    submitit_main()\n'
    assert named(diagnosed(tmp_path, cancel + cut)) == []
    assert named(diagnosed(tmp_path, cut)) == [("error", [])]


def test_a_process_that_is_kept_for_a_debugger_crashed_where_the_signal_met_it(
    tmp_path: Path,
) -> None:
    rows = [
        "clock_nanosleep ()",
        "gasneti_freezeForDebuggerNow ()",
        "gasneti_defaultSignalHandler ()",
    ]
    rows += [
        "<signal handler called>",
        "Mesh::unpack (this=0x7f, n=3) at /app/mesh.cc:88",
        "main () at /app/main.cc:9",
    ]
    lines = [f"#{n}  {'' if '<' in row else '0x00007fff in '}{row}" for n, row in enumerate(rows)]
    said = diagnosed(tmp_path, "\n".join(lines) + "\n")
    assert "was ended by SIGSEGV in Mesh::unpack (mesh.cc:88)" in said.summary


def test_a_task_that_the_kernel_saw_blocked(tmp_path: Path) -> None:
    text = (
        "INFO: task ior:142307 blocked for more than 120 seconds.\n"
        "[  +0,007808] ior             D ffff9d9620f28000     0 142307 141862 0x00000080\n"
        "[  +0,007173] Call Trace:\n[  +0,005570]  [<ffffffffc07b0f84>] osc_io_fsync_end+0x74/0xa0 [osc]\n"
    )
    said = diagnosed(tmp_path, text)
    assert named(said) == [("io_wait", [])]
    assert "(ior) blocked for more than 120 s in a system call" in said.summary


def test_the_node_of_a_blocked_task_stands_before_the_kernels_word(tmp_path: Path) -> None:
    line = "messages:Jun  7 20:18:08 ip-10-1-2-3 kernel: INFO: task sim:788 blocked for more than 120 seconds.\n"
    assert [c.nodes for c in diagnosed(tmp_path, line).causes] == [["ip-10-1-2-3"]]


def test_oneccl_says_what_it_lacks(tmp_path: Path) -> None:
    head = "2024:08:21-10:24:26:( 4456) |CCL_ERROR| "
    later = head + "atl_ofi.cpp:243 init: can't find suitable provider\n"
    lines = head + "atl_ofi_helper.cpp:907 list: can't create providers for name shm\n" + later
    assert "libfabric has no provider shm" in diagnosed(tmp_path, lines).summary
    lines = (
        head
        + "base_thread.cpp:36 start: error while creating worker thread #0 pthread_create returns 22\n"
        "RuntimeError: oneCCL: exec.cpp:134 start_workers: EXCEPTION: failed to start worker # 0\n"
    )
    said = diagnosed(tmp_path, lines)
    assert "could not create its worker thread 0 (pthread_create: 22)" in said.summary
    assert said.summary.startswith("Process 4456 failed first") and named(said) == [("error", [])]


def test_a_slingshot_card_without_room_for_messages(tmp_path: Path) -> None:
    text = (
        " 135: libfabric:47:16:cxi:core:cxip_ux_onload_cb():2444<warn> RXC (0xe910:7:0): Flow control triggered"
        " due to failure to append LE. Software endpoint mode required.\n"
        " 135: Program received signal SIGABRT: Process abort signal.\n"
    )
    said = diagnosed(tmp_path, text)
    assert named(said) == [("error", [135])] and "failure to append LE" in said.summary


def test_an_address_outside_of_mpis_network_lies_between_two(tmp_path: Path) -> None:
    text = "".join(
        f"[{rank}] fatal error\nFatal error in MPI_Comm_split: Other MPI error, error stack:\n"
        f"MPI_Comm_split(MPI_COMM_WORLD, color=0, key={rank}, new_comm=0x000000CC) failed\n"
        f"unable to connect to 10.35.1.{rank} K{rank}  on port 55228, no endpoint matches the netmask 10.37.0.0/255.255.0.0\n"
        for rank in (13, 14)
    )
    said = diagnosed(tmp_path, text)
    assert named(said) == [("in_communication", [])]
    assert "10.35.1.13,10.35.1.14" in said.summary
    assert "not in the network 10.37.0.0/255.255.0.0" in said.summary


def test_a_card_that_cannot_be_connected(tmp_path: Path) -> None:
    text = "n3:5140:5355 [0] misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable\n"
    said = diagnosed(tmp_path, text)
    assert [c.nodes for c in said.causes] == [["n3"]]
    assert "RoCE connection (ibv_modify_qp: Network is unreachable)" in said.summary


def test_a_server_of_the_rendezvous_that_none_reaches(tmp_path: Path) -> None:
    line = "Mon Jun  7 11:51:5{0} 2021[{0}]<stderr>:[2021-06-07 11:51:57.96: E /x/gloo/http_store.cc:96] HTTP GET request failed too many times, aborting.\n"
    said = diagnosed(tmp_path, "".join(line.format(rank) for rank in range(3)))
    assert named(said) == [("start_stall", [])] and "rendezvous server (HTTP)" in said.summary
    text = "org.apache.spark.SparkException: Barrier stage in job 0 requires 4 slots, but only 1 are available, waiting for more.\n"
    assert "needs 4 slots at once, and Spark has 1" in diagnosed(tmp_path, text).summary

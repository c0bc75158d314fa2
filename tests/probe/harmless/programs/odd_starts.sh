# Would notice a program that is packed, frozen, renamed, timed at its imports, debugged in its memory or on a terminal, and starts or ends otherwise.
cat > job.py <<'P'
import os, sys, threading
import torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for size in range(1, 30):
    dist.all_reduce(torch.ones(size))
work = dist.all_reduce(torch.ones(3), async_op=True)
work.wait()
group = dist.new_group([0])
dist.broadcast(torch.ones(2), 0, group=group)
print(sys.argv[1:], sys.argv[0].rpartition("/")[2], __name__, getattr(sys, "frozen", None), dist.get_rank(), flush=True)
import witness
witness.note(sys.argv[1])
dist.destroy_process_group()
P
mkdir app && cp job.py app/__main__.py && "$PYTHON" -m zipapp app -o app.pyz -p "$PYTHON"
"$PYTHON" -c '
import os, pty, sys
code = pty.spawn([sys.argv[1], "app.pyz", "zipped, on a terminal"], lambda fd: os.read(fd, 4096), lambda fd: b"")
print("ended with", os.waitstatus_to_exitcode(code))' "$PYTHON" < /dev/null
rm app.pyz # it has times in it
"$PYTHON" -c '
import ctypes, runpy, sys
sys.frozen, sys._MEIPASS = True, "/nowhere"
sys.executable = sys.argv.pop(1)
with open("/proc/self/stat") as f: fields = f.read().rpartition(")")[2].split()
begin, end = int(fields[45]), int(fields[46])
ctypes.memset(begin, ord("x"), end - begin)
ctypes.CDLL(None).prctl(15, b"renamed", 0, 0, 0)
runpy.run_path("job.py", run_name="__main__")' /nowhere/app "frozen and renamed"
PYTHONMALLOC=debug "$PYTHON" -X dev -W ignore -X importtime job.py "debugged memory, timed imports" 2> times
grep -c hangdoctor times > /dev/null; grep -v -e hangdoctor -e '|' times; rm times

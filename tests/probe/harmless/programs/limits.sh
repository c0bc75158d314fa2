# Would notice a program near its limits of files, memory, file size, threads or stack that hits them or is killed.
cat > limited.py <<'P'
import os, resource, signal, sys, threading, witness
what, number = sys.argv[1], int(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
witness.note(what)
if what == "threads":
    threading.stack_size(number)
    t = threading.Thread(target=print, args=("in a small stack",)); t.start(); t.join()
if what == "size":
    open("of", "wb").write(bytes(number // 2))
print(what, len(os.listdir("/proc/self/fd")) < number or number < 40, resource.getrlimit(resource.RLIMIT_NOFILE))
P
(ulimit -n 12; "$PYTHON" limited.py files 12)
(ulimit -n 5; "$PYTHON" limited.py few 5 2>&1 | tail -1)
(ulimit -v 400000; "$PYTHON" limited.py address 0)
(ulimit -f 100; "$PYTHON" limited.py size 51200)
(ulimit -s 256; "$PYTHON" limited.py stack 0)
(ulimit -c 0; "$PYTHON" limited.py core 0)
"$PYTHON" limited.py threads 32768

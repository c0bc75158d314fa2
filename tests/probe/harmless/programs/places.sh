# Would notice a program in a place without /dev/shm, /proc, /tmp, home or current folder that fails or complains.
cat > there.py <<'P'
import os, sys, threading, witness
if sys.argv[1] == "witness": witness.note("plain")
t = threading.Thread(target=len, args=("x",)); t.start(); t.join()
print(sys.argv[1], len(os.environ) > 2, os.path.exists("/proc/self"), flush=True)
P
there=$PWD/there.py
"$PYTHON" there.py witness
mkdir gone && (cd gone && rmdir ../gone && "$PYTHON" "$there" "no current folder")
mkdir gone && (cd gone && rmdir ../gone && PYTHONPATH="$PYTHONPATH::lib" "$PYTHON" "$there" "no current folder, relative path")
env -u HOME -u TMPDIR -u PATH "$PYTHON" there.py "no home"
(umask 0777; "$PYTHON" there.py umask)
(umask 0; "$PYTHON" there.py open; ls -ld there.py | cut -c1-10)
HANGDOCTOR_DIR=/proc/none "$PYTHON" there.py "a folder that cannot be"
HANGDOCTOR_DIR= "$PYTHON" there.py "no folder told"
if unshare -m true 2>/dev/null; then
    unshare -m sh -c 'mount -t tmpfs -o size=64k none /dev/shm && "$PYTHON" there.py "full shared memory"; ls -A /dev/shm'
    unshare -m sh -c 'mount -t tmpfs -o ro none /dev/shm && mount -t tmpfs -o ro none /tmp && "$PYTHON" there.py "read-only"; ls -A /dev/shm'
    HANGDOCTOR_DIR= unshare -m sh -c 'mount -t tmpfs -o size=64k none /dev/shm && "$PYTHON" there.py "full default place"; find /dev/shm -mindepth 2'
    unshare -m sh -c 'mount -t tmpfs none /proc && "$PYTHON" there.py "no /proc"'
fi

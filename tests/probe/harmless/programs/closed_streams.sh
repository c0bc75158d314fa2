# Would notice a program whose standard streams are closed and which reads, writes or ends otherwise, or writes to a foreign file.
cat > streams.py <<'P'
import os, sys
import witness
witness.note(sys.argv[1])
opened = [os.open("/dev/null", os.O_RDWR) for _ in range(2)]
low = sorted(fd for fd in range(3) if os.path.exists(f"/proc/self/fd/{fd}"))
with open("said." + sys.argv[1], "w") as f:
    print(low, [s is None for s in (sys.stdin, sys.stdout, sys.stderr)], file=f)
    for fd in (1, 2):
        try: print(os.write(fd, b"written\n"), file=f)
        except OSError as error: print(error, file=f)
P
"$PYTHON" streams.py none </dev/null
"$PYTHON" streams.py in <&-
"$PYTHON" streams.py out >&-
"$PYTHON" streams.py err 2>&-
"$PYTHON" streams.py out-err >&- 2>&-
"$PYTHON" streams.py all <&- >&- 2>&-
"$PYTHON" streams.py full > /dev/full
"$PYTHON" -c 'print("x" * 100000)' | head -c 3

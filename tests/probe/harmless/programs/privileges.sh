# Would notice a program that gives its user away, or runs as another one, and then fails, complains or leaves files with other owners.
cat > drop.py <<'P'
import os, sys, threading, witness
witness.note(sys.argv[1])
if sys.argv[1] == "drops" and os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
t = threading.Thread(target=len, args=("x",)); t.start(); t.join()
print(sys.argv[1], os.getuid(), os.getgid(), os.getgroups() == [] or len(os.getgroups()) > 0)
if os.fork() == 0:
    sys.exit(3)
print(os.wait()[1])
P
"$PYTHON" drop.py stays
"$PYTHON" drop.py drops

# Would notice start-up files of the job's own (sitecustomize, usercustomize, .pth) that do not run, or run otherwise.
site=$("$PYTHON" -S -c 'import site; print(site.getusersitepackages())')
unset PYTHONNOUSERSITE
mkdir -p "$site" a b c
echo 'import os; os.environ["PTH"] = os.environ.get("PTH", "") + "p"' > "$site/own.pth"
echo 'import os; print("usercustomize", os.environ.get("PTH"))' > "$site/usercustomize.py"
echo 'import sys; print("sitecustomize a", __name__, __file__[-19:], __spec__.name)' > a/sitecustomize.py
echo 'raise ValueError("mine")' > b/sitecustomize.py
mkdir c/sitecustomize && echo 'from . import more' > c/sitecustomize/__init__.py && echo 'print("more")' > c/sitecustomize/more.py
base=/usr/bin/python3
test -x $base || base=$PYTHON
original=$PYTHONPATH
# A virtual environment has no user site: the interpreter below it has.
for python in "$PYTHON" $base; do
    for own in a b c "a:" ":c" "a:b"; do
        echo "== $own"
        PYTHONPATH="${original%"${PROGRAMS%/programs}"}$own" "$python" -c 'import sys; print(sys.modules.get("sitecustomize"))
import importlib.util as u; print([p for p in sys.path[:4] if "lib/python" not in p])' 2>&1 | grep -v '^None' | grep -v '^<module .sitecustomize. from .*hangdoctor'
    done
done
PYTHONPATH="$original:a" "$PYTHON" -c 'import witness; witness.note("behind")'
PYTHONPATH="a:$original" "$PYTHON" -c 'import witness; witness.note("in front")'

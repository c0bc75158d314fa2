# Would notice noise, warnings and another path or flags at the start of Python, whatever options it is given.
cat > say.py <<'P'
import sys
print(sys.flags, [p for p in sys.path if "hangdoctor" in p], sys.argv, __name__, __doc__)
if len(sys.argv) > 1:
    sys.path.insert(0, sys.argv[1])
    import witness
    witness.note(sys.argv[2])
P
n=0
for options in "-I -S -E" "-s -u" -OO "-W error -bb" "-X dev -W error" "-X warn_default_encoding -W error" \
    "-X tracemalloc=5" "-X faulthandler -X utf8=0" -P "-X frozen_modules=off" -B; do
    n=$((n + 1))
    echo "python $options"
    # shellcheck disable=SC2086 # several words
    "$PYTHON" $options say.py "${PROGRAMS%/programs}" "$n" &
    wait $!
    echo "ended with $?"
done
echo 'print("from stdin", __name__)' | "$PYTHON" -W error -
"$PYTHON" -W error -m say
PYTHONMALLOC=debug PYTHONDEVMODE=1 PYTHONWARNINGS=error PYTHONOPTIMIZE=2 "$PYTHON" say.py
echo 'x = 1
x' | "$PYTHON" -q -i 2>&1

# Would notice a locale, an encoding or a time zone that is another one, or noise about it.
for settings in LC_ALL=C LANG=C LC_ALL=C.UTF-8 LC_CTYPE=POSIX LANG=xx_XX.nonsense "LANG=C PYTHONCOERCECLOCALE=0 PYTHONUTF8=0" \
    "LC_ALL=C PYTHONIOENCODING=latin-1:replace" "TZ=Asia/Tokyo"; do
    # shellcheck disable=SC2086 # several words
    env -u LANG $settings "$PYTHON" -c '
import locale, sys, time, os, witness
print(sys.stdout.encoding, sys.stdout.errors, sys.getfilesystemencoding(), locale.getlocale(), time.tzname, os.environ.get("LC_CTYPE"))
print("\xe4", ascii(os.fsdecode(b"\xff")))
witness.note(sys.argv[1])' "$settings"
done
mkdir -p "$(printf 'folder-\303\244-\377')" && cd folder-* && "$PYTHON" -c 'import os, sys; print(ascii(os.getcwd()[-12:]))'

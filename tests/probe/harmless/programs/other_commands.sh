# Would notice signals, variables and descriptors that `hangdoctor run` hands on changed to a command that is not Python.
env | grep -v -e '^HANGDOCTOR' -e '^PYTHONPATH' -e '^NCCL_PROFILER_PLUGIN' -e '^_=' -e '^MASTER_PORT' | sort
grep -e '^Sig[BIC]' -e '^ShdPnd' /proc/self/status
ls /proc/self/fd | wc -l
yes | head -1
printf '%s|' "$0" "$@" | sed 's,.*/,,'; echo
umask; ulimit -n; pwd | sed 's,.*/,,'
printf 'byte \377 here\n' | od -c | head -1
kill -USR1 $$
echo "not reached"

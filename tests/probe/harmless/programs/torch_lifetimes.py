"""Would notice tensors, handles, groups, exceptions or code that live longer or shorter, or are counted or collected otherwise."""

import gc
import sys
import threading
import time
import tracemalloc
import weakref

import torch
import torch.distributed as dist
import witness

# Before there is another thread: Python exchanges its allocators while gloo's thread, which lets go of a
# tensor, may be in them, and the process crashes, with the probe or without.
tracemalloc.start()
dist.init_process_group("gloo")
group = dist.new_group([0])
gone = []


def watch(thing, name):
    weakref.finalize(thing, gone.append, name)


gc.collect()
gc.disable()
collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase))

t = torch.ones(4)
watch(t, "tensor")
print(sys.getrefcount(t))
dist.all_reduce(t)
dist.broadcast(t, 0, group=group)
end = time.monotonic() + 10
while sys.getrefcount(t) > 2 and time.monotonic() < end:
    time.sleep(0.01)  # gloo's thread lets go of the tensor a moment after the operation
print(sys.getrefcount(t), weakref.getweakrefcount(t))
work = dist.all_reduce(t, async_op=True)
watch(work, "handle that is waited for")
print(sys.getrefcount(work), work.wait(), work.is_completed(), type(work).__name__)
del work
work = dist.all_reduce(t, async_op=True)
watch(work, "handle that is dropped")
del work
dist.barrier()
kept = [dist.all_reduce(torch.ones(2), async_op=True) for _ in range(100)]
for one in reversed(kept):
    one.wait()
    one.wait()
print(len({id(one) for one in kept}), kept[3].is_success(), kept[5].exception())
one.get_future().then(lambda f: f.value()).wait()
del kept, one, t
print(gone)


class Mine(TypeError):
    """One that can be watched."""


class Odd:
    @property
    def shape(self):
        raise Mine("asked for the shape")

    dtype = shape
    __len__ = __bool__ = __eq__ = shape.fget
    __hash__ = None


for function in (dist.all_reduce, dist.broadcast_object_list, dist.all_gather_object):
    odd = Odd()
    watch(odd, "argument")
    try:
        function(odd, odd)
    except Mine as error:
        print(type(error).__name__, str(error)[:80])
        watch(error, "exception")
    except Exception as error:
        print(type(error).__name__, str(error)[:80])
    del odd
print(gone)

other = dist.new_group([0])
watch(other, "group")
dist.all_reduce(torch.ones(1), group=other)
dist.destroy_process_group(other)
del other
print(gone)

space = {"dist": dist, "torch": torch}
code = compile("def f():\n    dist.all_reduce(torch.ones(1))\nf()", "made here", "exec")
exec(code, space)
watch(space.pop("f"), "function")
print(gone)

tracemalloc.clear_traces()
kept = [torch.ones(8) for _ in range(50)]
for one in kept:
    dist.all_reduce(one)
mine = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, __file__)])
print(sum(s.count for s in mine.statistics("filename")) // 10)


def wait_without_progress():
    own = Mine("local of a function whose frame the heartbeat reads")
    watch(own, "local of a function that waited")
    time.sleep(3.5)
    return sys.getrefcount(own), sys.getrefcount(sys._getframe())


print(wait_without_progress(), gone[-1])

# Threads that come and go: more of them than there are places for.
for _ in range(5):
    threads = [threading.Thread(target=dist.all_reduce, args=(torch.ones(1),)) for _ in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(threading.active_count(), len(sys._current_frames()) - threading.active_count() < 2)
print(collections, gc.collect() < 1000, gc.garbage)
gc.enable()
witness.note("end")
dist.destroy_process_group()
print(gone)

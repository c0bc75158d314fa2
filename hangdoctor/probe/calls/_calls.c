/* The hot path of call tracing: one event of 16 bytes into the mapped ring for each followed call, return and exception.

   Everything here runs under the interpreter's lock, which is what serialises the writers. What is slow or rare (which
   code to follow, names, threads) is asked of Python once and remembered. `format.py` has the bytes, `hooks.py` drives
   this module. Before Python 3.12 a profile function is set in every thread; from 3.12 on sys.monitoring calls `on_*`. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#if UINTPTR_MAX < 0xFFFFFFFFFFFFFFFFu
#error "an answer and its generation are kept in one pointer: 64 bits are needed"
#endif
#ifdef Py_GIL_DISABLED
#error "the interpreter's lock serialises the writers: not for free-threaded builds"
#endif

#if PY_VERSION_HEX >= 0x030C0000
#define WITH_MONITORING 1
#define get_extra PyUnstable_Code_GetExtra
#define set_extra PyUnstable_Code_SetExtra
#define request_extra PyUnstable_Eval_RequestCodeExtraIndex
#else
#define WITH_MONITORING 0
#define get_extra _PyCode_GetExtra
#define set_extra _PyCode_SetExtra
#define request_extra _PyEval_RequestCodeExtraIndex
#endif

enum { CALL = 1, RETURN = 2, EXCEPTION = 3 };
#define MAX_THREADS 1024

typedef struct {
    uint64_t time;
    uint32_t code;
    uint16_t thread;
    uint8_t kind;
    uint8_t lap;
} event_t;

typedef struct {
    uint64_t tid, since, last, zero;
    char name[32];
} thread_t;

static struct {
    int active;
    uint32_t generation; /* of the choice: answers of an earlier one are asked again */
    uint64_t serial;     /* events written since the file was made */
    uint64_t slot, slots;
    uint8_t lap;
    event_t *ring;
    thread_t *threads;
    uint64_t *head;
    PyObject *decide; /* (code, frame) -> id of the code, or -1 to ignore it */
    PyObject *enlist; /* () -> index of the current thread in the table */
    Py_buffer map;
} R;

static uint32_t stamps[MAX_THREADS]; /* who owns an entry of the thread table: it may pass to a later thread */
static uint32_t last_stamp;
/* Each thread's index and stamp, in one pointer. No variable of the thread (`__thread`): where there is no memory for those of
   a library that was loaded late, the C library aborts the process at the first use. */
static pthread_key_t own_key;
typedef struct {
    uint32_t index, stamp;
} own_t;
_Static_assert(sizeof(own_t) == sizeof(void *), "64 bits");
static Py_ssize_t extra_index = -1;
#if WITH_MONITORING
static PyObject *disable; /* sys.monitoring.DISABLE */
#endif

/* ------------------------------------------------------------------ events */

static inline own_t own(void)
{
    own_t found;
    void *kept = pthread_getspecific(own_key);
    memcpy(&found, &kept, sizeof found);
    return found;
}

/* Give this thread its place: 1, 0 where it gets none, -1 with an exception. */
static int enlist(own_t *mine)
{
    PyObject *call = Py_NewRef(R.enlist); /* another thread may detach meanwhile */
    PyObject *answer = PyObject_CallNoArgs(call);
    Py_DECREF(call);
    if (answer == NULL)
        return -1;
    long index = PyLong_AsLong(answer);
    Py_DECREF(answer);
    if (index < 0 || index >= MAX_THREADS)
        return PyErr_Occurred() ? -1 : 0;
    mine->index = (uint32_t)index;
    mine->stamp = stamps[index] = ++last_stamp;
    void *kept;
    memcpy(&kept, mine, sizeof kept);
    return pthread_setspecific(own_key, kept) == 0;
}

/* Write one event; -1 with an exception set that belongs to the job (a signal handler's). */
static inline int put(uint32_t code, uint8_t kind)
{
    own_t mine = own();
    if (mine.stamp != stamps[mine.index]) {
        int done = enlist(&mine);
        if (done <= 0)
            return done;
        if (!R.active) /* another thread switched it off meanwhile */
            return 0;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    event_t *event = R.ring + R.slot;
    event->time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    event->code = code;
    event->thread = (uint16_t)mine.index;
    event->kind = kind;
    event->lap = R.lap;
    R.threads[mine.index].last = ++R.serial;
    if (++R.slot == R.slots) {
        R.slot = 0;
        R.lap++;
    }
    __atomic_store_n(R.head, R.serial, __ATOMIC_RELEASE); /* last: what is counted is whole */
    return 0;
}

/* The id of a code object plus one, 0 where it is ignored, -1 on an exception of the job's. */
static inline int64_t answer_for(PyObject *code, PyObject *frame)
{
    void *known = NULL;
    if (get_extra(code, extra_index, &known) == 0 && (uintptr_t)known >> 32 == R.generation)
        return (int64_t)((uintptr_t)known & 0xFFFFFFFFu);
    uint32_t generation = R.generation;
    if (frame == NULL)
        frame = (PyObject *)PyEval_GetFrame();
    PyObject *call = Py_NewRef(R.decide); /* another thread may detach meanwhile */
    PyObject *answer = PyObject_CallFunctionObjArgs(call, code, frame ? frame : Py_None, NULL);
    Py_DECREF(call);
    if (answer == NULL)
        return -1;
    long id = PyLong_AsLong(answer);
    Py_DECREF(answer);
    uint32_t low = id < 0 ? 0 : (uint32_t)id + 1;
    set_extra(code, extra_index, (void *)((uintptr_t)generation << 32 | low));
    PyErr_Clear(); /* of SetExtra without memory: it is asked again */
    return R.active ? low : 0;
}

/* ------------------------------------------------------------------ Python before 3.12: a profile function */

#if !WITH_MONITORING
/* `join`, made once: what sys.getprofile() shows. A profiler of the job that puts ours away puts it back with this. */
static PyObject *shown;

static int on_profile(PyObject *self, PyFrameObject *frame, int what, PyObject *arg)
{
    (void)self;
    if ((what != PyTrace_CALL && what != PyTrace_RETURN) || !R.active)
        return 0;
    PyCodeObject *code = PyFrame_GetCode(frame);
    int64_t answer = answer_for((PyObject *)code, (PyObject *)frame);
    Py_DECREF(code);
    if (answer <= 0)
        return (int)answer;
    return put((uint32_t)answer - 1, what == PyTrace_CALL ? CALL : arg == NULL ? EXCEPTION : RETURN);
}

static int is_ours(PyThreadState *t)
{
    return t->c_profilefunc == on_profile;
}

/* adopt(): set the profile function in every thread that has none. Returns (newly set, left to another profiler). */
static PyObject *adopt(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyThreadState *self = PyThreadState_Get();
    int added = 0, others = 0;
    for (PyThreadState *t = PyInterpreterState_ThreadHead(self->interp); t != NULL; t = PyThreadState_Next(t)) {
        if (is_ours(t))
            continue;
        if (t->c_profilefunc != NULL) {
            others++;
            continue;
        }
        if (_PyEval_SetProfile(t, on_profile, shown) < 0)
            return NULL;
        added++;
    }
    return Py_BuildValue("ii", added, others);
}

/* join(frame, event, arg): what threading.setprofile gives to a new thread: takes itself out for `on_profile`. */
static PyObject *join(PyObject *module, PyObject *args)
{
    PyObject *frame, *event, *arg;
    if (!PyArg_ParseTuple(args, "O!OO", &PyFrame_Type, &frame, &event, &arg))
        return NULL;
    PyThreadState *self = PyThreadState_Get();
    if (_PyEval_SetProfile(self, R.active ? on_profile : NULL, R.active ? shown : NULL) < 0)
        return NULL;
    if (PyUnicode_Check(event) && PyUnicode_CompareWithASCIIString(event, "call") == 0 &&
        on_profile(module, (PyFrameObject *)frame, PyTrace_CALL, arg) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* release(): take the profile function out of every thread that has ours. */
static PyObject *release(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyThreadState *self = PyThreadState_Get();
    for (PyThreadState *t = PyInterpreterState_ThreadHead(self->interp); t != NULL; t = PyThreadState_Next(t))
        if (is_ours(t) && _PyEval_SetProfile(t, NULL, NULL) < 0)
            return NULL;
    Py_RETURN_NONE;
}
#endif

/* ------------------------------------------------------------------ Python 3.12 and later: sys.monitoring */

#if WITH_MONITORING
static inline PyObject *monitored(PyObject *const *args, Py_ssize_t n, uint8_t kind, int can_disable)
{
    if (R.active && n > 0) {
        int64_t answer = answer_for(args[0], NULL);
        if (answer < 0 || (answer > 0 && put((uint32_t)answer - 1, kind) < 0))
            return NULL;
        if (answer == 0 && can_disable && R.active)
            return Py_NewRef(disable); /* never asked again at this place */
    }
    Py_RETURN_NONE;
}

static PyObject *on_call(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    return monitored(args, n, CALL, 1);
}

static PyObject *on_throw(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    return monitored(args, n, CALL, 0);
}

static PyObject *on_return(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    return monitored(args, n, RETURN, 1);
}

static PyObject *on_unwind(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t n)
{
    return monitored(args, n, EXCEPTION, 0);
}
#endif

/* ------------------------------------------------------------------ switching */

static void in_child(void)
{
    R.active = 0; /* the ring is the parent's: at once, before any Python of the child runs */
}

static PyObject *detach(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    R.active = 0;
    if (R.map.obj != NULL)
        PyBuffer_Release(&R.map);
    Py_CLEAR(R.decide);
    Py_CLEAR(R.enlist);
    Py_RETURN_NONE;
}

/* attach(map, ring, slots, threads, head, decide, enlist): begin to write where the file's own count says. */
static PyObject *attach(PyObject *module, PyObject *args)
{
    Py_buffer map;
    Py_ssize_t ring, slots, threads, head;
    PyObject *decide, *enlist_call;
    if (!PyArg_ParseTuple(args, "w*nnnnOO", &map, &ring, &slots, &threads, &head, &decide, &enlist_call))
        return NULL;
    if (slots < 1 || ring < 0 || threads < 0 || head < 0 || ring % 8 || threads % 8 || head % 8 ||
        ring + slots * (Py_ssize_t)sizeof(event_t) > map.len || head + 8 > map.len ||
        threads + MAX_THREADS * (Py_ssize_t)sizeof(thread_t) > map.len) {
        PyBuffer_Release(&map);
        PyErr_SetString(PyExc_ValueError, "the ring does not fit its file");
        return NULL;
    }
    if (R.map.obj != NULL || R.decide != NULL) {
        PyObject *done = detach(module, NULL);
        Py_XDECREF(done);
    }
    uint8_t *base = map.buf;
    R.map = map;
    R.ring = (event_t *)(base + ring);
    R.threads = (thread_t *)(base + threads);
    R.head = (uint64_t *)(base + head);
    R.slots = (uint64_t)slots;
    R.serial = *R.head;
    R.slot = R.serial % R.slots;
    R.lap = (uint8_t)(R.serial / R.slots);
    R.decide = Py_NewRef(decide);
    R.enlist = Py_NewRef(enlist_call);
    R.generation++;
    memset(stamps, 0xFF, sizeof stamps);
    R.active = 1;
    Py_RETURN_NONE;
}

/* pause(flag): let no event through, or again. */
static PyObject *pause_writing(PyObject *Py_UNUSED(module), PyObject *flag)
{
    int off = PyObject_IsTrue(flag);
    if (off < 0)
        return NULL;
    R.active = !off && R.decide != NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"attach", attach, METH_VARARGS, "Begin to write into a mapped file."},
    {"detach", detach, METH_NOARGS, "Let go of the file."},
    {"pause", pause_writing, METH_O, "Stop writing for a while (True), or go on (False)."},
#if WITH_MONITORING
    {"on_call", (PyCFunction)(void (*)(void))on_call, METH_FASTCALL, "PY_START and PY_RESUME."},
    {"on_throw", (PyCFunction)(void (*)(void))on_throw, METH_FASTCALL, "PY_THROW."},
    {"on_return", (PyCFunction)(void (*)(void))on_return, METH_FASTCALL, "PY_RETURN and PY_YIELD."},
    {"on_unwind", (PyCFunction)(void (*)(void))on_unwind, METH_FASTCALL, "PY_UNWIND."},
#else
    {"adopt", adopt, METH_NOARGS, "Set the profile function in every thread that has none."},
    {"join", join, METH_VARARGS, "For threading.setprofile: set it in this new thread."},
    {"release", release, METH_NOARGS, "Take the profile function out of all threads."},
#endif
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_calls", "The hot path of call tracing.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__calls(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    extra_index = request_extra(NULL);
    if (extra_index < 0) {
        PyErr_SetString(PyExc_ImportError, "no room for one more number on code objects");
        Py_DECREF(module);
        return NULL;
    }
#if !WITH_MONITORING
    shown = PyObject_GetAttrString(module, "join");
    if (shown == NULL) {
        Py_DECREF(module);
        return NULL;
    }
#else
    PyObject *monitoring = PySys_GetObject("monitoring"); /* borrowed */
    disable = monitoring ? PyObject_GetAttrString(monitoring, "DISABLE") : NULL;
    if (disable == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ImportError, "no sys.monitoring");
        Py_DECREF(module);
        return NULL;
    }
#endif
    if (pthread_key_create(&own_key, NULL) != 0) {
        PyErr_SetString(PyExc_ImportError, "no key for what each thread has");
        Py_DECREF(module);
        return NULL;
    }
    pthread_atfork(NULL, NULL, in_child);
    return module;
}

/* The hot path of the black box: one call of torch.distributed, recorded. `wrap.py` has the same in Python, and both
   write the same bytes (`format.py`); what is rare is asked of Python here.

   Runs under the interpreter's lock, which serialises the writers. No slot of the ring is taken before everything that
   can run Python code (and a signal handler of the job with it) is done: a record is written in one go. */

#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE 1 /* for the interpreter's frames, see `walk` */
#include <Python.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <frameobject.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef Py_GIL_DISABLED
#error "the interpreter's lock serialises the writers: not for free-threaded builds"
#endif
#define LIKELY(x) __builtin_expect(!!(x), 1)
#if PY_VERSION_HEX >= 0x030B0000
#define last_instruction PyFrame_GetLasti
#else
#define last_instruction(frame) ((frame)->f_lasti)
#endif

/* Frames without their Python objects, which cost an allocation each: only where this interpreter's layout is known. */
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000 && __has_include(<internal/pycore_frame.h>)
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
#define WITH_FRAMES 1
#else
#define WITH_FRAMES 0
#endif

/* The thread's state: where this interpreter shows it, read through one pointer instead of calls. */
#if WITH_FRAMES && PY_VERSION_HEX < 0x030C0000
#define current_state() ((PyThreadState *)_Py_atomic_load_relaxed(hot.current))
#else
#define current_state PyThreadState_Get
#endif

#define HOT __attribute__((always_inline)) static inline
#define RARE __attribute__((cold, noinline)) /* kept away from the hot path: every line of it is a miss in a training */
#define RECORD_WORDS 16
#define NO_GROUP 0xFFFFFFFFu
#define FLAG_ASYNC 1u
#define FLAG_RECV 4u
#define FLAG_MARK 32u
#define TAG_SHIFT 8
#define TAG_LIMIT 0xFFFFFF /* of tags that have room above the flags */
#define STARTED 1u /* outcomes */
#define FAILED 3u
#define DROPPED 4u
#define ITERATION 2 /* kinds of marks */
#define MICRO_BATCH 3
#define ITERATION_WORD 13 /* of the header, u64 each */
#define MICRO_BATCH_WORD 14
#define ITERATION_SINCE_WORD 17
#define STEPS_WORD 140
#define STEP_SINCE_WORD 141
#define TRIES 64
#define PARAMETERS 10
#define DIMENSIONS 6
#define LINE 64 /* bytes of cache */
#define HANDLES 65536 /* followed at once */
#define SIGNATURES 1024 /* powers of two */
#define SITES 512
#define CODES 512
#define RECENT_SIGNATURES 16 /* powers of two */
#define RECENT_SITES 32
#define PAGE 4096
#define PROBES 4

typedef struct { /* byte for byte `format.RECORD`, with the group's uid at its end */
    uint64_t serial, seq, entered;
    uint32_t group, signature, site, thread;
    int32_t peer, iteration;
    uint32_t flags, tag;
    uint64_t left;
    uint32_t outcome, check;
    char text[48];
    uint64_t uid;
} record_t;
_Static_assert(sizeof(record_t) == RECORD_WORDS * 8 && offsetof(record_t, uid) == 120, "format.py");

typedef struct {
    uint32_t call, signature;
    PyObject *dtype, *reduce; /* torch's constants: they live as long as torch */
    uint32_t ndim, dims[DIMENSIONS];
    uint32_t unused[3];
} signature_t;
_Static_assert(sizeof(signature_t) == 64, "one line of cache");

typedef struct {
    PyObject *code; /* kept alive by `Sites` */
    int64_t at;     /* the instruction; 0 for a code alone */
    int64_t site;   /* of a code alone: 1 where it is skipped on the way to the call site */
    int64_t unused;
} site_t;

/* ------------------------------------------------------------------ what Python subclasses */

typedef struct core Core;

typedef struct { /* base of Probe */
    PyObject_HEAD
    Core *core; /* its recorder, where that has a ring */
    PyObject *recorder, *tracer;
} Holder;

typedef struct { /* sends to a peer, or receives from it */
    int32_t peer;
    uint32_t direction; /* 0: this place is free */
    uint64_t count;
} directed_t;

typedef struct { /* base of GroupEntry */
    PyObject_HEAD
    uint64_t seq, uid_word;
    uint32_t index, used, room; /* of `directed`; room is 0 or a power of two */
    directed_t *directed;
} Entry;

typedef struct { /* base of Groups */
    PyObject_HEAD
    PyObject *by_id, *standard;
} Directory;

typedef struct { /* what is kept for each thread */
    PyObject_HEAD
    uint64_t state; /* the thread state that it belongs to, 0 until known */
    PyObject *recorder, *coalesced;
    Py_ssize_t word;
    int depth, index;
} Thread;

struct core { /* base of Recorder. What each operation needs comes first: it is on two lines of cache */
    PyObject_HEAD
    uint64_t *words; /* of the box */
    record_t *ring;
    uint64_t serial, mask;
    PyObject *groups;
    signature_t *signatures;
    site_t *sites;
    Py_ssize_t length; /* of the box in words */
    int iteration;
    char careful;
    PyObject *outstanding;
    site_t *codes;
    uint64_t steps;
    void *tables;
    Py_buffer map;
};

static PyTypeObject HolderType, EntryType, DirectoryType, ThreadType, CoreType, FunctionType, MethodType, FollowedType;

/* Each thread's own `Thread`, not owned: its end clears this. No variable of the thread (`__thread`): where there is no memory
   for those of a library that was loaded late, the C library aborts the process at the first use. */
static pthread_key_t own_key;
/* What each operation needs, on one page, because between two operations of a training the translations of addresses are
   forgotten too: a page more costs as much as a line of cache more. Under the interpreter's lock. */
static struct {
    Thread *last; /* of the thread that came last, not owned either */
    uint64_t last_state;
    Holder *holder; /* the one that was set last, and its core */
    Core *core;
    Directory *groups; /* the one that was asked last, and its default group */
    PyObject *standard;
    PyTypeObject *entry; /* the subclass that was seen: owned */
    unsigned forks;
    int (*clock)(clockid_t, struct timespec *);
    /* The interpreter's, which each library reaches by a page of its own. */
    PyObject *none, *yes, *no;
#if WITH_FRAMES && PY_VERSION_HEX < 0x030C0000
    _Py_atomic_address *current;
#endif
    /* Of torch: how a plain tensor shows its shape, see `set_tensor`. */
    size_t handle; /* where a tensor's object has its C++ tensor; 0 until known */
    void *kind;    /* the C++ class of dense tensors */
    PyTypeObject *tensor, *parameter;
    /* Torch's own C functions, which run no code of the job; used once a tensor has shown that they tell the same (`compare`). */
    int32_t (*get_dim)(void *, int64_t *), (*get_sizes)(void *, int64_t **), (*get_dtype)(void *, int32_t *);
    /* What was found last in the tables of `owner`. */
    Core *owner;
    signature_t signatures[RECENT_SIGNATURES] __attribute__((aligned(LINE)));
    site_t sites[RECENT_SITES];
} hot __attribute__((aligned(PAGE)));
_Static_assert(sizeof hot <= PAGE, "one page");
static struct {
    PyGetSetDescrObject *shape, *dtype, *address;
    PyObject *mode;
} getters;
static PyTypeObject *work_kind; /* torch's class of handles, where their wait is ours */
static PyObject *when_dropped;
static PyObject *name_learn_iteration, *name_learn_micro_batch, *name_learn_step;
static PyObject *name_fail, *name_describe_call, *name_enlist, *name_judge, *name_locate, *name_find;

/* The main thread, whose place is shown; unknown where this was loaded by another one. */
static struct {
    PyThreadState *state;
    pthread_t thread;
} program;

static int *pulse_runs;

static void in_child(void)
{
    if (pulse_runs != NULL)
        *pulse_runs = 0; /* its thread is the parent's */
    hot.forks++;
    hot.last = NULL;
    pthread_setspecific(own_key, NULL);
    if (!pthread_equal(program.thread, pthread_self()))
        program.state = NULL; /* freed with the thread, which is not in the child */
}

static void thread_dealloc(Thread *self)
{
    if (pthread_getspecific(own_key) == self)
        pthread_setspecific(own_key, NULL);
    if (hot.last == self)
        hot.last = NULL;
    Py_XDECREF(self->recorder);
    Py_XDECREF(self->coalesced);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static void holder_dealloc(Holder *self)
{
    if (hot.holder == self)
        hot.holder = NULL;
    Py_XDECREF(self->recorder);
    Py_XDECREF(self->tracer);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static void entry_dealloc(Entry *self)
{
    PyMem_Free(self->directed);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static void directory_dealloc(Directory *self)
{
    if (hot.groups == self)
        hot.groups = NULL;
    Py_XDECREF(self->by_id);
    Py_XDECREF(self->standard);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static void core_dealloc(Core *self)
{
    if (hot.owner == self)
        hot.owner = NULL;
    if (self->map.obj != NULL)
        PyBuffer_Release(&self->map);
    Py_XDECREF(self->groups);
    Py_XDECREF(self->outstanding);
    PyMem_Free(self->tables);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *holder_get_recorder(Holder *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self->recorder != NULL ? self->recorder : Py_None);
}

static int holder_set_recorder(Holder *self, PyObject *recorder, void *Py_UNUSED(closure))
{
    PyObject *before = self->recorder;
    int has_ring = recorder != NULL && PyObject_TypeCheck(recorder, &CoreType) && ((Core *)recorder)->map.obj != NULL;
    self->core = has_ring ? (Core *)recorder : NULL;
    hot.holder = self;
    hot.core = self->core;
    self->recorder = Py_XNewRef(recorder);
    Py_XDECREF(before);
    return 0;
}

/* Whether anything is recorded, for which the holder's own page is not needed. */
HOT Core *core_of(const Holder *holder)
{
    return LIKELY(holder == hot.holder) ? hot.core : holder->core;
}

static PyObject *directory_get_default(Directory *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self->standard != NULL ? self->standard : Py_None);
}

static int directory_set_default(Directory *self, PyObject *standard, void *Py_UNUSED(closure))
{
    PyObject *before = self->standard;
    self->standard = Py_XNewRef(standard);
    if (hot.groups == self)
        hot.standard = standard;
    Py_XDECREF(before);
    return 0;
}

static PyGetSetDef directory_attributes[] = {
    {"default", (getter)directory_get_default, (setter)directory_set_default, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyGetSetDef holder_attributes[] = {
    {"recorder", (getter)holder_get_recorder, (setter)holder_set_recorder, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMemberDef holder_members[] = {
    {"tracer", T_OBJECT, offsetof(Holder, tracer), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyMemberDef entry_members[] = {
    {"seq", T_ULONGLONG, offsetof(Entry, seq), 0, NULL},
    {"uid_word", T_ULONGLONG, offsetof(Entry, uid_word), 0, NULL},
    {"index", T_UINT, offsetof(Entry, index), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyMemberDef directory_members[] = {
    {"by_id", T_OBJECT, offsetof(Directory, by_id), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyMemberDef thread_members[] = {
    {"recorder", T_OBJECT, offsetof(Thread, recorder), 0, NULL},
    {"coalesced", T_OBJECT, offsetof(Thread, coalesced), 0, NULL},
    {"word", T_PYSSIZET, offsetof(Thread, word), 0, NULL},
    {"depth", T_INT, offsetof(Thread, depth), 0, NULL},
    {"index", T_INT, offsetof(Thread, index), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyMemberDef core_members[] = {
    {"iteration", T_INT, offsetof(Core, iteration), 0, NULL},
    {"careful", T_BOOL, offsetof(Core, careful), 0, NULL},
    {"steps", T_ULONGLONG, offsetof(Core, steps), 0, NULL},
    {"groups", T_OBJECT, offsetof(Core, groups), 0, NULL},
    {"outstanding", T_OBJECT, offsetof(Core, outstanding), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* attach(map, first word of the ring, its records): where records go. */
static PyObject *core_attach(Core *self, PyObject *args)
{
    Py_ssize_t first, records;
    if (self->map.obj != NULL) {
        PyErr_SetString(PyExc_ValueError, "it has its ring");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "w*nn", &self->map, &first, &records))
        return NULL;
    if (first < 0 || records < 1 || (records & (records - 1)) || (uintptr_t)self->map.buf % 8 ||
        (first + records * RECORD_WORDS) * 8 > self->map.len) {
        PyBuffer_Release(&self->map);
        PyErr_SetString(PyExc_ValueError, "the ring does not fit its file");
        return NULL;
    }
    hot.owner = NULL;
    self->tables = PyMem_Calloc(1, LINE + SIGNATURES * sizeof(signature_t) + (SITES + CODES) * sizeof(site_t));
    if (self->tables == NULL) {
        PyBuffer_Release(&self->map);
        return PyErr_NoMemory();
    }
    self->signatures = (signature_t *)(((uintptr_t)self->tables + LINE - 1) & ~(uintptr_t)(LINE - 1));
    self->sites = (site_t *)(self->signatures + SIGNATURES);
    self->codes = self->sites + SITES;
    self->words = self->map.buf;
    self->length = self->map.len / 8;
    self->ring = (record_t *)(self->words + first);
    self->mask = (uint64_t)records - 1;
    Py_RETURN_NONE;
}

static PyObject *core_next_serial(Core *self, PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromUnsignedLongLong(++self->serial);
}

static inline uint64_t wall(void);
static inline record_t *slot(Core *core);
static inline void write_record(record_t *record, const record_t *with);

static uint64_t mark(Core *core, int thread, int kind, int64_t number, uint32_t text)
{
    record_t *record = slot(core);
    record_t with = {.serial = core->serial, .seq = (uint64_t)number, .group = NO_GROUP, .signature = text,
                     .thread = (uint32_t)thread, .peer = kind, .iteration = core->iteration, .flags = FLAG_MARK};
    with.entered = with.left = wall();
    with.check = (uint32_t)with.serial;
    write_record(record, &with);
    return with.entered;
}

/* write_mark(thread index, kind, number, text): what the job says of itself. Its time is returned. */
static PyObject *core_write_mark(Core *self, PyObject *const *args, Py_ssize_t n)
{
    if (n != 4 || self->words == NULL) {
        PyErr_SetString(PyExc_TypeError, "write_mark(thread, kind, number, text)");
        return NULL;
    }
    long thread = PyLong_AsLong(args[0]), kind = PyLong_AsLong(args[1]), text = PyLong_AsLong(args[3]);
    long long number = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    return PyLong_FromUnsignedLongLong(mark(self, (int)thread, (int)kind, number, (uint32_t)text));
}

/* This thread's own, where it is known; borrowed. */
static inline Thread *known_thread(void)
{
    uint64_t state = current_state()->id;
    if (LIKELY(hot.last_state == state && hot.last != NULL))
        return hot.last;
    Thread *own = pthread_getspecific(own_key);
    if (own == NULL || own->state != state)
        return NULL;
    hot.last = own;
    hot.last_state = state;
    return own;
}

/* The recorder and this thread's slot where both are known and calls are not traced: the rest is Python's. */
static Core *ready(Holder *self, Thread **thread)
{
    Core *core = core_of(self);
    if (core == NULL || (self->tracer != NULL && self->tracer != Py_None))
        return NULL;
    *thread = known_thread();
    return *thread != NULL && (*thread)->recorder == (PyObject *)core ? core : NULL;
}

/* A count that the job names, written into the header and the ring. 0 where Python must see to it. */
static int count_off(Holder *self, PyObject *n, int kind, long long *number)
{
    Thread *thread;
    Core *core = ready(self, &thread);
    int over = 0;
    if (core == NULL || !PyLong_CheckExact(n))
        return 0;
    *number = PyLong_AsLongLongAndOverflow(n, &over);
    if (over)
        return 0;
    uint64_t *words = core->words;
    words[kind == ITERATION ? ITERATION_WORD : MICRO_BATCH_WORD] = (uint64_t)*number;
    if (kind == ITERATION)
        core->iteration = *number >= INT32_MIN && *number <= INT32_MAX ? (int)*number : -1;
    uint64_t now = mark(core, thread->index, kind, *number, 0);
    if (kind == ITERATION)
        words[ITERATION_SINCE_WORD] = now;
    return 1;
}

/* set_iteration(n) */
static PyObject *holder_set_iteration(Holder *self, PyObject *n)
{
    long long number;
    if (count_off(self, n, ITERATION, &number))
        Py_RETURN_NONE;
    return PyObject_CallMethodOneArg((PyObject *)self, name_learn_iteration, n);
}

/* set_micro_batch(n) */
static PyObject *holder_set_micro_batch(Holder *self, PyObject *n)
{
    long long number;
    if (count_off(self, n, MICRO_BATCH, &number))
        Py_RETURN_NONE;
    return PyObject_CallMethodOneArg((PyObject *)self, name_learn_micro_batch, n);
}

/* step(): an optimizer has made a step. */
static PyObject *holder_step(Holder *self, PyObject *Py_UNUSED(ignored))
{
    Thread *thread;
    if (self->recorder == NULL || self->recorder == Py_None)
        Py_RETURN_NONE;
    Core *core = ready(self, &thread);
    if (core == NULL)
        return PyObject_CallMethodNoArgs((PyObject *)self, name_learn_step);
    uint64_t *words = core->words;
    words[STEPS_WORD] = ++core->steps;
    if (core->iteration < 0) /* the job names none: its steps stand for them, in the ring too */
        words[STEP_SINCE_WORD] = mark(core, thread->index, ITERATION, (int64_t)core->steps, 0);
    else
        words[STEP_SINCE_WORD] = wall();
    Py_RETURN_NONE;
}

static PyMethodDef holder_methods[] = {
    {"set_iteration", (PyCFunction)holder_set_iteration, METH_O, "Say which iteration begins."},
    {"set_micro_batch", (PyCFunction)holder_set_micro_batch, METH_O, "Say which micro-batch begins."},
    {"step", (PyCFunction)holder_step, METH_NOARGS, "An optimizer has made a step."},
    {NULL, NULL, 0, NULL},
};

static PyObject *core_enter_here(Core *self, PyObject *const *args, Py_ssize_t n);
static PyObject *core_leave(Core *self, PyObject *tokens);

static PyMethodDef core_methods[] = {
    {"enter_here", (PyCFunction)(void (*)(void))core_enter_here, METH_FASTCALL, "A record of this thread's call."},
    {"leave", (PyCFunction)core_leave, METH_O, "Mark operations as over."},
    {"write_mark", (PyCFunction)(void (*)(void))core_write_mark, METH_FASTCALL, "What the job says of itself."},
    {"attach", (PyCFunction)core_attach, METH_VARARGS, "Where records go."},
    {"next_serial", (PyCFunction)core_next_serial, METH_NOARGS, "The number of the next record."},
    {NULL, NULL, 0, NULL},
};

/* ------------------------------------------------------------------ sends and receives, counted */

static directed_t *directed_place(directed_t *table, uint32_t room, int32_t peer, uint32_t direction)
{
    uint32_t at = ((uint32_t)peer * 2u + (direction == FLAG_RECV)) * 0x9E3779B1u;
    for (;; at++) {
        directed_t *place = &table[at & (room - 1)];
        if (place->direction == 0 || (place->peer == peer && place->direction == direction))
            return place;
    }
}

RARE static int more_directed(Entry *entry)
{
    uint32_t room = entry->room ? entry->room * 2 : 4;
    directed_t *table = room ? PyMem_Calloc(room, sizeof(directed_t)) : NULL;
    if (table == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0; i < entry->room; i++)
        if (entry->directed[i].direction)
            *directed_place(table, room, entry->directed[i].peer, entry->directed[i].direction) = entry->directed[i];
    PyMem_Free(entry->directed);
    entry->directed = table;
    entry->room = room;
    return 0;
}

/* The number of a send to this peer or of a receive from it, from 1; 0 for none of a known peer, -1 with an exception. */
static int64_t next_directed(Entry *entry, int32_t peer, uint32_t direction)
{
    if (peer < 0)
        return 0;
    if (entry->used * 2 >= entry->room && more_directed(entry) < 0)
        return -1;
    directed_t *place = directed_place(entry->directed, entry->room, peer, direction);
    if (place->direction == 0) {
        *place = (directed_t){peer, direction, 0};
        entry->used++;
    }
    return (int64_t)++place->count;
}

/* next_directed(peer, direction) */
static PyObject *entry_next_directed(Entry *self, PyObject *const *args, Py_ssize_t n)
{
    if (n != 2) {
        PyErr_SetString(PyExc_TypeError, "next_directed(peer, direction)");
        return NULL;
    }
    long peer = PyLong_AsLong(args[0]), direction = PyLong_AsLong(args[1]);
    if (PyErr_Occurred())
        return NULL;
    if (peer < 0 || peer > INT32_MAX || direction < 1 || direction > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "no rank, or no direction");
        return NULL;
    }
    int64_t count = next_directed(self, (int32_t)peer, (uint32_t)direction);
    return count < 0 ? NULL : PyLong_FromLongLong(count);
}

static PyMethodDef entry_methods[] = {
    {"next_directed", (PyCFunction)(void (*)(void))entry_next_directed, METH_FASTCALL, "Count a send or a receive."},
    {NULL, NULL, 0, NULL},
};

/* ------------------------------------------------------------------ one wrapped function */

/* A function of Python whose calls come here: what looks at the job's functions (compilers, inspect, pickle) finds one. Its
   code, which does the same, is run by copies of it alone. */
typedef struct {
    PyFunctionObject base;
    /* What each call needs comes first, next to the base's `vectorcall`. */
    Holder *probe;
    PyObject *function;
    vectorcallfunc straight; /* the function's own */
    uint32_t id, direction;  /* SEND, RECV, or 0 for a collective */
    uint32_t absent;         /* places that must not be given, or the call is described in Python */
    int8_t known;            /* parameters that the probe knows */
    int8_t tensor, reduce, group, async_, root, group_root, tag; /* places of parameters, -1 for none */
    int8_t required, zero_root, fast; /* fast: tensor, dtype and reduce op are the whole signature */
    int8_t always_async;
    PyObject *names; /* of those parameters */
    PyObject *slow, *describe, *thread_of, *returned, *refused, *global_rank;
} Function;

static uint32_t last_function;

static inline uint64_t wall(void)
{
    struct timespec now;
    hot.clock(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* An object of a type or of one below it, of which the one that was seen last is remembered. */
RARE static int learn_type(PyObject *object, PyTypeObject *base, PyTypeObject **seen)
{
    if (object == NULL || !PyObject_TypeCheck(object, base))
        return 0;
    PyTypeObject *before = *seen;
    *seen = (PyTypeObject *)Py_NewRef(Py_TYPE(object));
    Py_XDECREF(before);
    return 1;
}

static inline int is_a(PyObject *object, PyTypeObject *base, PyTypeObject **seen)
{
    return LIKELY(object != NULL && Py_TYPE(object) == *seen) || learn_type(object, base, seen);
}

RARE static Thread *learn_thread(Function *self)
{
    PyObject *found = PyObject_CallNoArgs(self->thread_of);
    if (found == NULL)
        return NULL;
    if (!PyObject_TypeCheck(found, &ThreadType)) {
        Py_DECREF(found);
        PyErr_SetString(PyExc_TypeError, "no Thread");
        return NULL;
    }
    Thread *own = (Thread *)found;
    own->state = PyThreadState_GetID(PyThreadState_Get());
    pthread_setspecific(own_key, own); /* without memory for it: the next call asks again */
    return own;
}

/* This thread's own, a new reference; NULL with an exception. */
static inline Thread *current_thread(Function *self)
{
    Thread *known = known_thread();
    return LIKELY(known != NULL) ? (Thread *)Py_NewRef(known) : learn_thread(self);
}

/* What a call says, as far as it is understood here. References are borrowed from the arguments. */
typedef struct {
    PyObject *at[PARAMETERS];
    PyObject *group, *root, *group_root; /* NULL for None */
    PyObject *owner;                     /* keeps them alive where Python described the call */
    int64_t signature;                   /* -1: described in Python, without room for it */
    int async_;
} said_t;

typedef struct { /* of a call, as its caller gave them */
    PyObject *const *values;
    Py_ssize_t n;    /* without names */
    PyObject *names; /* of those behind, or NULL */
} given_t;

/* Sort what was given by name: 0 where Python must see to it. */
static int bind_names(Function *self, const given_t *given, said_t *said)
{
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(given->names); k++) {
        int i = 0;
        while (i < self->known && PyTuple_GET_ITEM(self->names, i) != PyTuple_GET_ITEM(given->names, k))
            i++;
        if (i == self->known || said->at[i] != NULL)
            return 0;
        said->at[i] = given->values[given->n + k];
    }
    return 1;
}

/* Sort arguments by parameter: 0 where Python must describe the call (or torch refuse it). */
static int bind(Function *self, const given_t *given, said_t *said)
{
    if (given->n > self->known)
        return 0;
    for (Py_ssize_t i = 0; i < given->n; i++)
        said->at[i] = given->values[i];
    if (given->names != NULL && !bind_names(self, given, said))
        return 0;
    for (int i = 0; i < self->required; i++)
        if (said->at[i] == NULL)
            return 0;
    for (uint32_t places = self->absent; places != 0; places &= places - 1) {
        PyObject *value = said->at[__builtin_ctz(places)];
        if (value != NULL && value != hot.none)
            return 0;
    }
    return 1;
}

static inline PyObject *told(const said_t *said, int place)
{
    PyObject *found = place < 0 ? NULL : said->at[place];
    return found == hot.none ? NULL : found;
}

#define TENSOR_SEARCHED 64

/* Shape and dtype without asking Python: of dense tensors, whose C++ class is the one that was compared. */
HOT int look_inside(PyObject *tensor, signature_t *key)
{
    void **handle = (void **)((char *)tensor + hot.handle);
    int64_t ndim, *sizes;
    int32_t dtype;
    if (*handle == NULL || *(void **)*handle != hot.kind || hot.get_dim(handle, &ndim) || ndim > DIMENSIONS ||
        hot.get_sizes(handle, &sizes) || hot.get_dtype(handle, &dtype))
        return 0;
    key->ndim = (uint32_t)ndim;
    for (int64_t i = 0; i < ndim; i++) {
        if (sizes[i] < 0 || sizes[i] > UINT32_MAX)
            return 0;
        key->dims[i] = (uint32_t)sizes[i];
    }
    key->dtype = (PyObject *)(intptr_t)(dtype + 1);
    return 1;
}

/* Find out where this torch keeps the C++ tensor, by a tensor whose shape is known. */
RARE static void compare(PyObject *tensor, const signature_t *known)
{
    if (hot.handle != 0 || getters.address == NULL || hot.get_dim == NULL || hot.get_sizes == NULL || hot.get_dtype == NULL)
        return;
    PyObject *told = getters.address->d_getset->get(tensor, getters.address->d_getset->closure);
    void *address = told == NULL ? NULL : PyLong_AsVoidPtr(told);
    Py_XDECREF(told);
    PyErr_Clear();
    size_t most = Py_MIN((size_t)Py_TYPE(tensor)->tp_basicsize, TENSOR_SEARCHED);
    for (size_t at = sizeof(PyObject); address != NULL && at + sizeof(void *) <= most; at += sizeof(void *)) {
        if (*(void **)((char *)tensor + at) != address)
            continue;
        signature_t seen = {.call = 0};
        hot.handle = at;
        hot.kind = *(void **)address;
        if (!look_inside(tensor, &seen) || seen.ndim != known->ndim ||
            memcmp(seen.dims, known->dims, seen.ndim * sizeof *seen.dims) != 0) {
            hot.handle = 0;
            getters.address = NULL; /* another torch: its getters will do */
        }
        return;
    }
}

/* Shape and dtype of a plain tensor, by torch's own getters; 0 where Python must tell. A function mode of the job would be
   asked by them: then they are not called here. */
RARE static int ask_getters(PyObject *tensor, signature_t *key)
{
    PyObject *mode = PyObject_CallNoArgs(getters.mode);
    int plain = mode == Py_False;
    Py_XDECREF(mode);
    if (!plain) {
        PyErr_Clear();
        return 0;
    }
    PyObject *shape = getters.shape->d_getset->get(tensor, getters.shape->d_getset->closure);
    if (shape == NULL || !PyTuple_Check(shape) || PyTuple_GET_SIZE(shape) > DIMENSIONS) {
        PyErr_Clear();
        Py_XDECREF(shape);
        return 0;
    }
    key->ndim = (uint32_t)PyTuple_GET_SIZE(shape);
    int whole = 1;
    for (uint32_t i = 0; i < key->ndim && whole; i++) {
        PyObject *size = PyTuple_GET_ITEM(shape, i);
        int over = 0;
        long long wide = PyLong_CheckExact(size) ? PyLong_AsLongLongAndOverflow(size, &over) : -1;
        whole = !over && wide >= 0 && wide <= UINT32_MAX;
        key->dims[i] = (uint32_t)wide;
    }
    Py_DECREF(shape);
    if (!whole)
        return 0;
    key->dtype = getters.dtype->d_getset->get(tensor, getters.dtype->d_getset->closure);
    if (key->dtype == NULL) {
        PyErr_Clear();
        return 0;
    }
    Py_DECREF(key->dtype); /* torch keeps its dtypes */
    compare(tensor, key);
    return 1;
}

/* Shape and dtype of a plain tensor; 0 where Python must tell. */
static inline int look_at(PyObject *tensor, signature_t *key)
{
    PyTypeObject *type = Py_TYPE(tensor);
    if (type != hot.tensor && type != hot.parameter)
        return 0;
    return LIKELY(hot.handle != 0 && look_inside(tensor, key)) || ask_getters(tensor, key);
}

static inline uint64_t mix(uint64_t h, uint64_t x)
{
    h ^= x;
    h *= 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

/* What is left of `dims` is 0. */
HOT int same_signature(const signature_t *a, const signature_t *b)
{
    uint32_t differ = (a->call ^ b->call) | (a->ndim ^ b->ndim);
    for (int i = 0; i < DIMENSIONS; i++)
        differ |= a->dims[i] ^ b->dims[i];
    return differ == 0 && a->dtype == b->dtype && a->reduce == b->reduce;
}

HOT uint64_t signature_hash(const signature_t *key)
{
    uint64_t h = mix(mix(key->call, (uint64_t)(uintptr_t)key->dtype), (uint64_t)(uintptr_t)key->reduce);
    for (int i = 0; i < DIMENSIONS; i += 2)
        h = mix(h, (uint64_t)key->dims[i + 1] << 32 | key->dims[i]);
    return h;
}

/* Where a signature is remembered, or would be: `*found` says which. */
RARE static signature_t *signature_place(Core *core, const signature_t *key, uint64_t h, int *found)
{
    signature_t *first = &core->signatures[h & (SIGNATURES - 1)];
    *found = 0;
    for (int i = 0; i < PROBES; i++) {
        signature_t *place = &core->signatures[(h + (uint64_t)i) & (SIGNATURES - 1)];
        if (place->call == 0)
            return place;
        if (same_signature(place, key)) {
            *found = 1;
            return place;
        }
    }
    return first;
}

/* What is on the page belongs to another box. */
RARE static void forget_recent(Core *core)
{
    memset(hot.signatures, 0, sizeof hot.signatures);
    memset(hot.sites, 0, sizeof hot.sites);
    hot.owner = core;
}

/* The id of a signature, 0 where it is not known. */
HOT uint32_t find_signature(Core *core, const signature_t *key)
{
    uint64_t h = signature_hash(key);
    int found;
    if (!LIKELY(hot.owner == core))
        forget_recent(core);
    signature_t *recent = &hot.signatures[h % RECENT_SIGNATURES];
    if (LIKELY(same_signature(recent, key)))
        return recent->signature;
    const signature_t *place = signature_place(core, key, h, &found);
    if (!found)
        return 0;
    *recent = *place;
    return place->signature;
}

/* (args, kwargs) as Python has them; 0, or -1 with an exception. */
RARE static int in_python(const given_t *given, PyObject **args, PyObject **kwargs)
{
    *args = PyTuple_New(given->n);
    *kwargs = PyDict_New();
    if (*args == NULL || *kwargs == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < given->n; i++)
        PyTuple_SET_ITEM(*args, i, Py_NewRef(given->values[i]));
    Py_ssize_t named = given->names == NULL ? 0 : PyTuple_GET_SIZE(given->names);
    for (Py_ssize_t i = 0; i < named; i++)
        if (PyDict_SetItem(*kwargs, PyTuple_GET_ITEM(given->names, i), given->values[given->n + i]) < 0)
            return -1;
    return 0;
}

/* What Python told of a call: 1, or -1 with an exception. */
RARE static int take_description(PyObject *words, said_t *said, int *remember)
{
    if (!PyTuple_CheckExact(words) || PyTuple_GET_SIZE(words) != 6) {
        PyErr_SetString(PyExc_TypeError, "no description");
        return -1;
    }
    said->signature = PyLong_AsLongLong(PyTuple_GET_ITEM(words, 0));
    PyObject **into[] = {&said->group, &said->root, &said->group_root};
    for (int i = 0; i < 3; i++) {
        PyObject *item = PyTuple_GET_ITEM(words, i + 1);
        *into[i] = item == Py_None ? NULL : item;
    }
    said->async_ = PyObject_IsTrue(PyTuple_GET_ITEM(words, 4));
    *remember = PyTuple_GET_ITEM(words, 5) == Py_True;
    return PyErr_Occurred() ? -1 : 1;
}

/* Let Python describe the call: 1 done, 0 no operation, -1 an exception. */
RARE static int ask(Core *core, Function *self, const given_t *given, PyObject *reduce, said_t *said, int *remember)
{
    PyObject *args = NULL, *kwargs = NULL;
    if (in_python(given, &args, &kwargs) == 0) {
        PyObject *stack[] = {(PyObject *)core, self->describe, args, kwargs, reduce ? reduce : Py_None};
        said->owner = PyObject_VectorcallMethod(name_describe_call, stack, 5, NULL);
    }
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    if (said->owner == NULL)
        return -1;
    return said->owner == Py_None ? 0 : take_description(said->owner, said, remember);
}

/* A call that was not seen before, or only Python understands: 1, 0 where it is no operation, -1 with an exception. */
RARE static int learn_signature(Core *core, Function *self, const given_t *given, signature_t *key, int bound, said_t *said)
{
    int remember = 0, found;
    int done = ask(core, self, given, bound ? key->reduce : NULL, said, &remember);
    if (done == 1 && bound && remember && said->signature > 0) {
        signature_t *place = signature_place(core, key, signature_hash(key), &found);
        key->signature = (uint32_t)said->signature;
        *place = *key;
    }
    return done;
}

/* What the call is about: 1, 0 where it is no operation, -1 with an exception. */
static inline int describe(Core *core, Function *self, const given_t *given, said_t *said)
{
    int bound = self->fast && bind(self, given, said);
    signature_t key = {.call = self->id};
    if (LIKELY(bound)) {
        key.reduce = told(said, self->reduce);
        PyObject *asynchronous = self->async_ < 0 ? NULL : said->at[self->async_];
        bound = asynchronous == NULL || asynchronous == hot.no || asynchronous == hot.yes;
        if (bound && self->tensor >= 0)
            bound = look_at(said->at[self->tensor], &key);
        if (LIKELY(bound)) {
            uint32_t known = find_signature(core, &key);
            if (LIKELY(known != 0)) {
                said->signature = known;
                said->group = told(said, self->group);
                said->root = told(said, self->root);
                said->group_root = told(said, self->group_root);
                said->async_ = self->always_async || asynchronous == hot.yes;
                return 1;
            }
        }
    }
    return learn_signature(core, self, given, &key, bound, said);
}

/* ------------------------------------------------------------------ where the call comes from */

static site_t *site_place(site_t *table, size_t size, PyObject *code, int64_t at, int *found)
{
    uint64_t h = mix((uint64_t)(uintptr_t)code >> 4, (uint64_t)at);
    site_t *first = &table[h & (size - 1)];
    for (int i = 0; i < PROBES; i++) {
        site_t *place = &table[(h + (uint64_t)i) & (size - 1)];
        if (place->code == NULL || (place->code == code && place->at == at)) {
            *found = place->code != NULL;
            return place;
        }
    }
    *found = 0;
    return first;
}

RARE static int judge(Core *core, PyObject *code)
{
    PyObject *answer = PyObject_CallMethodOneArg((PyObject *)core, name_judge, code);
    if (answer == NULL)
        return -1;
    long told = PyLong_AsLong(answer); /* 1 skipped, 0 not, +2 where the code is not kept alive */
    Py_DECREF(answer);
    if (told < 0)
        return -1;
    if (told < 2) {
        int found;
        *site_place(core->codes, CODES, code, 0, &found) = (site_t){.code = code, .site = told};
    }
    return (int)(told & 1);
}

/* Whether frames of this code are skipped; -1 with an exception. */
static int is_skipped(Core *core, PyObject *code)
{
    int found;
    site_t *place = site_place(core->codes, CODES, code, 0, &found);
    return found ? (int)place->site : judge(core, code);
}
typedef struct {
    PyObject *code; /* of the innermost frame that is not skipped; NULL for none */
    int64_t at;
} spot_t;

/* Find the calling frame's code and instruction: 1, 0 where all frames are skipped, -1 with an exception. */
#if WITH_FRAMES
#if PY_VERSION_HEX >= 0x030D0000
#define innermost(state) ((state)->current_frame)
#define code_of(frame) ((frame)->f_executable)
#define instruction_of(frame) ((frame)->instr_ptr)
#else
#define innermost(state) ((state)->cframe->current_frame)
#define code_of(frame) ((PyObject *)(frame)->f_code)
#define instruction_of(frame) ((frame)->prev_instr)
#endif
#if PY_VERSION_HEX >= 0x030C0000
#define is_real(frame) ((frame)->owner != FRAME_OWNED_BY_CSTACK && PyCode_Check(code_of(frame)))
#else
#define is_real(frame) (!_PyFrame_IsIncomplete(frame))
#endif

static inline int innermost_spot(spot_t *spot)
{
    _PyInterpreterFrame *frame = innermost(current_state());
    if (frame == NULL || frame->owner > FRAME_OWNED_BY_FRAME_OBJECT)
        return 0;
    *spot = (spot_t){code_of(frame), (int64_t)(intptr_t)instruction_of(frame)};
    return 1;
}

RARE static int walk(Core *core, spot_t *spot)
{
    for (_PyInterpreterFrame *frame = innermost(current_state()); frame != NULL; frame = frame->previous) {
        if (!is_real(frame))
            continue;
        int skipped = is_skipped(core, code_of(frame));
        if (skipped > 0)
            continue;
        *spot = (spot_t){code_of(frame), (int64_t)(intptr_t)instruction_of(frame)};
        return skipped < 0 ? -1 : 1;
    }
    return 0;
}
#else
static inline int innermost_spot(spot_t *Py_UNUSED(spot))
{
    return 0;
}

RARE static int walk(Core *core, spot_t *spot)
{
    PyFrameObject *frame = (PyFrameObject *)Py_XNewRef((PyObject *)PyEval_GetFrame());
    int done = 0;
    while (frame != NULL && done == 0) {
        PyObject *code = (PyObject *)PyFrame_GetCode(frame);
        int skipped = is_skipped(core, code);
        if (skipped <= 0) {
            *spot = (spot_t){code, last_instruction(frame)};
            done = skipped < 0 ? -1 : 1;
        }
        Py_DECREF(code); /* the frame has it, and its caller the frame */
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    return done;
}
#endif

RARE static int64_t learn_site(Core *core, spot_t spot, int seen)
{
    int found;
    PyObject *caller = Py_XNewRef((PyObject *)PyEval_GetFrame());
    if (caller == NULL) /* called by C alone: a hook, in autograd's thread */
        return PyErr_Occurred() ? -1 : 0;
    PyObject *stack[] = {(PyObject *)core, caller, spot.code ? spot.code : Py_None};
    PyObject *told = PyObject_VectorcallMethod(name_locate, stack, 3, NULL);
    int64_t site = told == NULL ? -1 : PyLong_AsLongLong(told); /* twice the id, plus 1 where it may be remembered */
    Py_XDECREF(told);
    Py_DECREF(caller);
    if (site > 0 && (site & 1) && seen > 0)
        *site_place(core->sites, SITES, spot.code, spot.at, &found) = (site_t){spot.code, spot.at, site >> 1, 0};
    return site < 0 ? site : site >> 1;
}

/* The call came through code that is skipped, or from a line that was not seen before. */
RARE static int64_t search_site(Core *core)
{
    spot_t spot = {NULL, 0};
    int found = 0, seen = walk(core, &spot);
    if (seen < 0)
        return -1;
    if (seen > 0) {
        site_t *place = site_place(core->sites, SITES, spot.code, spot.at, &found);
        if (found)
            return place->site;
    }
    return learn_site(core, spot, seen);
}

/* A line that was not among the last ones. */
RARE static int64_t recall_site(Core *core, spot_t spot, site_t *recent)
{
    int found;
    const site_t *place = site_place(core->sites, SITES, spot.code, spot.at, &found);
    if (!found)
        return search_site(core);
    *recent = *place;
    return place->site;
}

/* Id of the call site: the innermost frame that is not skipped (of which none is in the table). -1 with an exception. */
static inline int64_t find_site(Core *core)
{
    spot_t spot;
    if (!LIKELY(innermost_spot(&spot) && hot.owner == core))
        return search_site(core);
    site_t *recent = &hot.sites[mix((uint64_t)(uintptr_t)spot.code >> 4, (uint64_t)spot.at) % RECENT_SITES];
    if (LIKELY(recent->code == spot.code && recent->at == spot.at))
        return recent->site;
    return recall_site(core, spot, recent);
}

/* ------------------------------------------------------------------ groups and peers */

RARE static Entry *learn_entry(Directory *groups, PyObject *group)
{
    PyObject *found = PyObject_CallMethodOneArg((PyObject *)groups, name_find, group ? group : Py_None);
    if (found != NULL && (found == Py_None || !PyObject_TypeCheck(found, &EntryType)))
        Py_CLEAR(found);
    return (Entry *)found;
}

/* Of a group other than the default one: borrowed, NULL where it is not known, or with an exception. */
RARE static PyObject *entry_of(Directory *groups, PyObject *group)
{
    if (groups->by_id == NULL || !PyDict_CheckExact(groups->by_id))
        return NULL;
    PyObject *key = PyLong_FromVoidPtr(group);
    if (key == NULL)
        return NULL;
    PyObject *found = PyDict_GetItemWithError(groups->by_id, key);
    Py_DECREF(key);
    return found;
}

/* Another directory than the last time. */
RARE static int learn_groups(Core *core)
{
    if (core->groups == NULL || !PyObject_TypeCheck(core->groups, &DirectoryType)) {
        PyErr_SetString(PyExc_TypeError, "no Groups");
        return -1;
    }
    hot.groups = (Directory *)core->groups;
    hot.standard = hot.groups->standard;
    return 0;
}

/* A new reference; NULL without an exception where this rank is no member. */
static inline Entry *find_entry(Core *core, PyObject *group)
{
    if (!LIKELY((PyObject *)hot.groups == core->groups && hot.groups != NULL) && learn_groups(core) < 0)
        return NULL;
    Directory *groups = hot.groups;
    PyObject *found = group == NULL ? hot.standard : entry_of(groups, group);
    if (LIKELY(found != NULL && found != hot.none && is_a(found, &EntryType, &hot.entry)))
        return (Entry *)Py_NewRef(found);
    return PyErr_Occurred() ? NULL : learn_entry(groups, group);
}

RARE static int learn_peer(Function *self, Entry *entry, said_t *said, int32_t *peer)
{
    if (said->group_root == NULL && PyLong_CheckExact(said->root)) {
        int over;
        long rank = PyLong_AsLongAndOverflow(said->root, &over);
        *peer = over || rank < 0 || rank > INT32_MAX ? -1 : (int32_t)rank;
        return 0;
    }
    PyObject *root = said->root ? said->root : Py_None, *group_root = said->group_root ? said->group_root : Py_None;
    PyObject *told = PyObject_CallFunctionObjArgs(self->global_rank, (PyObject *)entry, root, group_root, NULL);
    if (told == NULL)
        return -1;
    *peer = (int32_t)PyLong_AsLong(told);
    Py_DECREF(told);
    return PyErr_Occurred() ? -1 : 0;
}

/* The root or peer of the call; 0, or -1 with an exception. */
static inline int peer_of(Function *self, Entry *entry, said_t *said, int32_t *peer)
{
    *peer = self->zero_root ? 0 : -1;
    return LIKELY(said->group_root == NULL && said->root == NULL) ? 0 : learn_peer(self, entry, said, peer);
}

/* ------------------------------------------------------------------ the record */

/* Step over the records of unfinished operations. */
RARE static record_t *next_slot(Core *core, record_t *record)
{
    for (int i = 1; i < TRIES && !record->left && record->serial; i++)
        record = core->ring + (++core->serial & core->mask);
    return record;
}

static inline record_t *slot(Core *core)
{
    record_t *record = core->ring + (++core->serial & core->mask);
    return core->careful && !record->left && record->serial ? next_slot(core, record) : record;
}

static inline void write_record(record_t *record, const record_t *with)
{
    /* The number first and the check last: what lies between them is whole where they fit. */
    __atomic_store_n(&record->serial, with->serial, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    record->uid = with->uid;
    memcpy((char *)record + 8, (const char *)with + 8, offsetof(record_t, check) - 8);
    __atomic_store_n(&record->check, with->check, __ATOMIC_RELEASE);
}

/* Whether the box has this thread's slot. */
static inline int has_slot(Core *core, Thread *thread)
{
    return thread->word >= 0 && thread->word + 4 <= core->length;
}

/* Ask for what the record will need: memory answers while the call is understood. */
static inline void fetch_ahead(Core *core, Thread *thread)
{
    char *next = (char *)(core->ring + ((core->serial + 1) & core->mask));
    __builtin_prefetch(next, 1);
    __builtin_prefetch(next + LINE, 1);
    if (has_slot(core, thread))
        __builtin_prefetch(core->words + thread->word + 1, 1);
}

/* An exception of the probe switches it off; one of the job's own comes back as -1. */
RARE static int failed(Holder *probe)
{
    PyObject *type, *error, *trace;
    if (!PyErr_ExceptionMatches(PyExc_Exception)) /* Ctrl-C */
        return -1;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL)
        PyException_SetTraceback(error, trace);
    PyObject *done = PyObject_CallMethodOneArg((PyObject *)probe, name_fail, error);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    if (done == NULL)
        return -1;
    Py_DECREF(done);
    return 0;
}

typedef struct {
    Core *core;
    Thread *thread;
    Entry *entry;
    record_t *record;
    uint64_t serial;
    int async_, anybody;
    int slow; /* the table of texts is full: Python writes the signature into the record */
} entered_t;

/* Give this thread its slot: 0, or -1 with an exception. */
RARE static int enlist(Core *core, Thread *thread)
{
    PyObject *enlisted = PyObject_CallMethodOneArg((PyObject *)core, name_enlist, (PyObject *)thread);
    Py_XDECREF(enlisted);
    if (enlisted != NULL && !has_slot(core, thread)) {
        PyErr_SetString(PyExc_ValueError, "the thread has no slot");
        return -1;
    }
    return enlisted == NULL ? -1 : 0;
}

/* The tag of a send or receive and one more, above the flags; 0 where it is no number or has no room. */
static inline uint32_t tag_of(Function *self, const said_t *said)
{
    if (self->tag < 0)
        return 0;
    PyObject *value = said->at[self->tag];
    int over = 0;
    long tag = value == NULL ? 0 : PyLong_CheckExact(value) ? PyLong_AsLongAndOverflow(value, &over) : -1;
    return over || tag < 0 || tag >= TAG_LIMIT ? 0 : (uint32_t)(tag + 1) << TAG_SHIFT;
}

static inline void write_entry(Function *self, entered_t *in, record_t *with)
{
    in->record = slot(in->core);
    with->serial = in->serial = in->core->serial;
    with->entered = wall();
    with->group = in->entry->index;
    with->thread = (uint32_t)in->thread->index;
    with->iteration = in->core->iteration;
    with->flags |= self->direction | (in->async_ ? FLAG_ASYNC : 0);
    with->uid = in->entry->uid_word;
    with->tag = (uint32_t)with->uid;
    with->check = (uint32_t)with->serial;
    write_record(in->record, with);
    in->core->words[in->thread->word + 1] = with->serial;
}

/* Enter the operation as it was described: 1 entered, 0 not an operation of this rank, -1 an exception (the probe's or the
   job's). */
static inline int enter_described(Function *self, said_t *said, entered_t *in)
{
    Core *core = in->core;
    record_t with = {.signature = (uint32_t)said->signature};
    in->entry = find_entry(core, said->group);
    if (in->entry == NULL)
        return PyErr_Occurred() ? -1 : 0;
    if (said->signature < 0) {
        in->slow = 1;
        return 0;
    }
    if (peer_of(self, in->entry, said, &with.peer) < 0)
        return -1;
    int64_t site = find_site(core);
    if (site < 0)
        return -1;
    with.site = (uint32_t)site;
    int enlisted = in->thread->recorder == (PyObject *)core && has_slot(core, in->thread);
    if (!LIKELY(enlisted) && enlist(core, in->thread) < 0)
        return -1;
    int64_t seq = self->direction ? next_directed(in->entry, with.peer, self->direction) : (int64_t)++in->entry->seq;
    if (seq < 0)
        return -1;
    /* From here on no Python runs. */
    with.seq = (uint64_t)seq;
    in->async_ = said->async_;
    in->anybody = self->direction == FLAG_RECV && said->root == NULL && said->group_root == NULL;
    with.flags = tag_of(self, said);
    write_entry(self, in, &with);
    return 1;
}

static inline int enter(Function *self, const given_t *given, entered_t *in)
{
    said_t said = {.signature = -1};
    int done = describe(in->core, self, given, &said);
    if (LIKELY(done > 0))
        done = enter_described(self, &said, in);
    Py_XDECREF(said.owner);
    return done;
}

RARE static PyObject *token_of(entered_t *in)
{
    Py_ssize_t word = (uint64_t *)in->record - in->core->words;
    return Py_BuildValue("(nK)", word, (unsigned long long)in->serial);
}

/* The operation ended in an exception, which stays set. */
RARE static int refuse(Function *self, entered_t *in)
{
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL)
        PyException_SetTraceback(error, trace);
    PyObject *token = token_of(in), *done = NULL;
    if (token != NULL)
        done = PyObject_CallFunctionObjArgs(self->refused, token, self->direction ? Py_None : (PyObject *)in->entry, error, NULL);
    Py_XDECREF(token);
    if (done == NULL) { /* the job's own, from a signal handler: it takes the other's place, as in Python */
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(trace);
        return -1;
    }
    Py_DECREF(done);
    PyErr_Restore(type, error, trace);
    return 0;
}

/* Mark an operation as left or completed, unless the ring has gone over it. */
static inline void finish(Core *core, Py_ssize_t word, uint64_t serial, uint32_t outcome)
{
    record_t *record = (record_t *)(core->words + word);
    if (record->serial != serial || record->left)
        return;
    if (outcome)
        record->outcome = outcome;
    __atomic_store_n(&record->left, wall(), __ATOMIC_RELEASE);
}

/* enter_here(thread, group, number, signature, peer, flags): the record of a call whose site is the innermost frame that is
   not skipped, as (its word, its serial); None where this thread has no slot yet, and Python must see to it. */
static PyObject *core_enter_here(Core *self, PyObject *const *args, Py_ssize_t n)
{
    if (n != 6 || self->words == NULL || !PyObject_TypeCheck(args[0], &ThreadType) || !PyObject_TypeCheck(args[1], &EntryType)) {
        PyErr_SetString(PyExc_TypeError, "enter_here(thread, group, number, signature, peer, flags)");
        return NULL;
    }
    Thread *thread = (Thread *)args[0];
    Entry *entry = (Entry *)args[1];
    unsigned long long seq = PyLong_AsUnsignedLongLong(args[2]);
    long signature = PyLong_AsLong(args[3]), peer = PyLong_AsLong(args[4]), flags = PyLong_AsLong(args[5]);
    if (PyErr_Occurred())
        return NULL;
    if (thread->recorder != (PyObject *)self || !has_slot(self, thread))
        Py_RETURN_NONE;
    int64_t site = find_site(self);
    if (site < 0)
        return NULL;
    record_t *record = slot(self);
    record_t with = {.serial = self->serial, .seq = seq, .group = entry->index, .signature = (uint32_t)signature,
                     .site = (uint32_t)site, .thread = (uint32_t)thread->index, .peer = (int32_t)peer,
                     .iteration = self->iteration, .flags = (uint32_t)flags, .uid = entry->uid_word};
    with.entered = wall();
    with.tag = (uint32_t)with.uid;
    with.check = (uint32_t)with.serial;
    write_record(record, &with);
    self->words[thread->word + 1] = with.serial;
    return Py_BuildValue("(nK)", (Py_ssize_t)((uint64_t *)record - self->words), (unsigned long long)with.serial);
}

/* leave(operations): mark them as over, unless the ring has gone over them. */
static PyObject *core_leave(Core *self, PyObject *tokens)
{
    if (!PyTuple_CheckExact(tokens) || self->words == NULL) {
        PyErr_SetString(PyExc_TypeError, "leave((word, serial), ...)");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tokens); i++) {
        Py_ssize_t word;
        unsigned long long serial;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(tokens, i), "nK", &word, &serial))
            return NULL;
        if (word >= 0 && word + RECORD_WORDS <= self->length)
            finish(self, word, serial, 0);
    }
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ handles of asynchronous operations */

/* A weak reference to a handle of torch's that knows the handle's operation: its tensors are the job's. */
typedef struct {
    PyWeakReference base;
    Core *core;
    PyObject *key; /* of `outstanding` */
    Py_ssize_t word;
    uint64_t serial;
} Followed;

static void followed_dealloc(Followed *self)
{
    PyObject *core = (PyObject *)self->core, *key = self->key;
    self->core = NULL;
    self->key = NULL;
    _PyWeakref_RefType.tp_dealloc((PyObject *)self);
    Py_XDECREF(core);
    Py_XDECREF(key);
}

static int followed_traverse(Followed *self, visitproc visit, void *arg)
{
    Py_VISIT(self->core);
    return _PyWeakref_RefType.tp_traverse((PyObject *)self, visit, arg);
}

/* As a tuple, for `wrap_waits.py` where that takes it off the table: (self, its operations). */
static PyObject *followed_item(Followed *self, Py_ssize_t at)
{
    if (at == 0)
        return Py_NewRef((PyObject *)self);
    if (at == 1)
        return Py_BuildValue("((nK))", self->word, (unsigned long long)self->serial);
    PyErr_SetString(PyExc_IndexError, "of two");
    return NULL;
}

static PySequenceMethods followed_sequence = {.sq_item = (ssizeargfunc)followed_item};

/* Take an operation off the table: a new reference, NULL where another one has taken it. */
static Followed *take(Core *core, PyObject *key, PyObject *followed)
{
    if (core->outstanding == NULL || !PyDict_CheckExact(core->outstanding) ||
        PyDict_GetItemWithError(core->outstanding, key) != followed)
        return NULL;
    Py_INCREF(followed);
    if (PyDict_DelItem(core->outstanding, key) < 0)
        PyErr_Clear();
    return (Followed *)followed;
}

/* when_dropped(followed): the job has let go of a handle that it had not waited for. */
static PyObject *on_drop(PyObject *Py_UNUSED(module), PyObject *followed)
{
    if (!Py_IS_TYPE(followed, &FollowedType) || ((Followed *)followed)->core == NULL)
        Py_RETURN_NONE;
    Followed *taken = take(((Followed *)followed)->core, ((Followed *)followed)->key, followed);
    if (taken != NULL) {
        finish(taken->core, taken->word, taken->serial, DROPPED);
        Py_DECREF(taken);
    }
    Py_RETURN_NONE;
}

/* Remember a handle, so that its completion is known: 1, 0 where Python must see to it, -1 with an exception. */
static int follow(entered_t *in, PyObject *work)
{
    Core *core = in->core;
    if (work_kind == NULL || Py_TYPE(work) != work_kind || !PyType_SUPPORTS_WEAKREFS(work_kind) || core->outstanding == NULL ||
        !PyDict_CheckExact(core->outstanding) || PyDict_GET_SIZE(core->outstanding) >= HANDLES)
        return 0;
    PyObject *key = PyLong_FromVoidPtr(work);
    Followed *followed = NULL;
    if (key != NULL)
        followed = (Followed *)PyObject_CallFunctionObjArgs((PyObject *)&FollowedType, work, when_dropped, NULL);
    int done = -1;
    if (followed != NULL) {
        followed->core = (Core *)Py_NewRef(core);
        followed->key = Py_NewRef(key);
        followed->word = (uint64_t *)in->record - core->words;
        followed->serial = in->serial;
        core->careful = 1;
        if (in->record->serial == in->serial)
            in->record->outcome = STARTED;
        done = PyDict_SetItem(core->outstanding, key, (PyObject *)followed) < 0 ? -1 : 1;
    }
    Py_XDECREF(key);
    Py_XDECREF(followed);
    return done;
}

/* ------------------------------------------------------------------ a call */

/* A call returned something that must be followed, or inside a coalescing manager: 0, or -1 with an exception of the job's. */
RARE static int ask_returned(Function *self, entered_t *in, PyObject *result)
{
    PyObject *token = token_of(in), *done = NULL;
    if (token != NULL)
        done = PyObject_CallFunctionObjArgs(self->returned, token, (PyObject *)in->entry, result,
                                            self->direction && in->async_ ? Py_True : Py_False,
                                            in->anybody ? Py_True : Py_False, NULL);
    Py_XDECREF(token);
    if (done == NULL)
        return failed(self->probe);
    Py_DECREF(done);
    return 0;
}

RARE static int leave_handle(Function *self, entered_t *in, PyObject *result, int coalesced)
{
    if (self->probe->core != in->core) /* switched off meanwhile */
        return 0;
    int followed = coalesced ? 0 : follow(in, result);
    if (followed < 0)
        return failed(self->probe);
    return followed ? 0 : ask_returned(self, in, result);
}

/* The operation returned: done, or a handle to follow. -1 with an exception of the job's. */
static inline int leave(Function *self, entered_t *in, PyObject *result)
{
    int plain = result == hot.none || (self->direction && PyLong_CheckExact(result) && !in->anybody);
    int coalesced = in->thread->coalesced != NULL && in->thread->coalesced != hot.none;
    if (!LIKELY(plain && !coalesced && !(self->direction && in->async_)))
        return leave_handle(self, in, result, coalesced);
    if (in->record->serial == in->serial)
        __atomic_store_n(&in->record->left, wall(), __ATOMIC_RELEASE);
    return 0;
}

static inline PyObject *through(Function *self, PyObject *const *values, size_t n, PyObject *names)
{
    return LIKELY(self->straight != NULL) ? self->straight(self->function, values, n, names)
                                          : PyObject_Vectorcall(self->function, values, n, names);
}

/* The wrapped function, recorded. */
__attribute__((aligned(PAGE))) static PyObject *function_vectorcall(PyObject *callable, PyObject *const *values, size_t n,
                                                                    PyObject *names)
{
    Function *self = (Function *)callable;
    entered_t in = {.core = core_of(self->probe)};
    if (in.core == NULL)
        return through(self, values, n, names); /* nothing is recorded now */
    PyObject *result = NULL;
    Py_INCREF(in.core);
    in.thread = current_thread(self);
    if (in.thread == NULL) {
        if (failed(self->probe) < 0)
            goto out;
        goto direct;
    }
    if (in.thread->depth)
        goto direct; /* part of the operation that it is called from */
    fetch_ahead(in.core, in.thread);
    given_t given = {values, PyVectorcall_NARGS(n), names};
    int entered = enter(self, &given, &in);
    if (in.slow) {
        result = PyObject_Vectorcall(self->slow, values, n, names);
        goto out;
    }
    if (entered < 0 && failed(self->probe) < 0)
        goto out;
    if (entered <= 0)
        goto direct;
    unsigned generation = hot.forks;
    in.thread->depth = 1;
    result = through(self, values, n, names);
    in.thread->depth = 0;
    if (hot.forks != generation)
        goto out; /* a child of the process that entered: the box is its parent's */
    if (result == NULL)
        refuse(self, &in);
    else if (leave(self, &in, result) < 0)
        Py_CLEAR(result);
    goto out;
direct:
    result = through(self, values, n, names);
out:
    Py_XDECREF(in.entry);
    Py_XDECREF(in.thread);
    Py_DECREF(in.core);
    return result;
}

static int function_traverse(Function *self, visitproc visit, void *arg)
{
    Py_VISIT(self->probe);
    Py_VISIT(self->function);
    Py_VISIT(self->names);
    Py_VISIT(self->slow);
    Py_VISIT(self->describe);
    Py_VISIT(self->thread_of);
    Py_VISIT(self->returned);
    Py_VISIT(self->refused);
    Py_VISIT(self->global_rank);
    return PyFunction_Type.tp_traverse((PyObject *)self, visit, arg);
}

static void function_dealloc(Function *self)
{
    PyObject *held[] = {(PyObject *)self->probe, self->function, self->names, self->slow, self->describe,
                        self->thread_of, self->returned, self->refused, self->global_rank};
    memset((char *)self + sizeof(PyFunctionObject), 0, sizeof(Function) - sizeof(PyFunctionObject));
    PyFunction_Type.tp_dealloc((PyObject *)self);
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        Py_XDECREF(held[i]);
}

/* By name, as functions are: pickle and copy know only those of exactly their type. */
static PyObject *function_reduce(Function *self, PyObject *Py_UNUSED(ignored))
{
    return Py_NewRef(self->base.func_qualname);
}

static PyMethodDef function_methods[] = {
    {"__reduce__", (PyCFunction)function_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* Each function's own, which the type's would hide. */
static PyMemberDef function_members[] = {
    {"__doc__", T_OBJECT, offsetof(PyFunctionObject, func_doc), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static int8_t place_of(PyObject *form, const char *name)
{
    PyObject *told = PyDict_GetItemString(form, name);
    long place = told == NULL ? -1 : PyLong_AsLong(told);
    return place <= PARAMETERS ? (int8_t)place : -1;
}

static uint32_t bits_of(PyObject *form, const char *name)
{
    PyObject *told = PyDict_GetItemString(form, name);
    return told == NULL ? 0 : (uint32_t)PyLong_AsUnsignedLong(told);
}

/* Take over what `like`, a plain function of Python, is made of. It is left as a shell that is never freed: what it had
   cannot be asked for piece by piece in all versions. */
static void become(Function *self, PyFunctionObject *like)
{
    PyObject_GC_UnTrack(like);
    memcpy((char *)self + sizeof(PyObject), (char *)like + sizeof(PyObject), sizeof(PyFunctionObject) - sizeof(PyObject));
    self->base.func_weakreflist = NULL;
#if PY_VERSION_HEX >= 0x030B0000
    self->base.func_version = 0;
#endif
    self->base.vectorcall = function_vectorcall;
    Py_INCREF(like);
}

/* Function(like, function, slow, probe, describe, helpers, names, form): `wrap.py` says what they are. */
static PyObject *function_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    if (PyTuple_GET_SIZE(args) == 0 || !PyFunction_Check(PyTuple_GET_ITEM(args, 0)))
        return PyFunction_Type.tp_new(&PyFunction_Type, args, keywords); /* type(function)(code, globals): a plain one */
    PyObject *like, *function, *slow, *probe, *describe, *thread_of, *returned, *refused, *global_rank, *names, *form;
    if (!PyArg_ParseTuple(args, "O!OOO!O(OOOO)O!O!", &PyFunction_Type, &like, &function, &slow, &HolderType, &probe, &describe,
                          &thread_of, &returned, &refused, &global_rank, &PyTuple_Type, &names, &PyDict_Type, &form))
        return NULL;
    if (!PyFunction_Check(like) || ((PyFunctionObject *)like)->func_weakreflist != NULL || PyTuple_GET_SIZE(names) > PARAMETERS) {
        PyErr_SetString(PyExc_ValueError, "not a fresh function, or too many parameters");
        return NULL;
    }
    uint32_t absent = bits_of(form, "absent"), direction = bits_of(form, "direction");
    int8_t required = place_of(form, "required"), tensor = place_of(form, "tensor");
    if (PyErr_Occurred())
        return NULL;
    Function *self = (Function *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    become(self, (PyFunctionObject *)like);
    self->probe = (Holder *)Py_NewRef(probe);
    self->function = Py_NewRef(function);
    self->straight = PyFunction_Check(function) ? ((PyFunctionObject *)function)->vectorcall : NULL;
    self->names = Py_NewRef(names);
    self->slow = Py_NewRef(slow);
    self->describe = Py_NewRef(describe);
    self->thread_of = Py_NewRef(thread_of);
    self->returned = Py_NewRef(returned);
    self->refused = Py_NewRef(refused);
    self->global_rank = Py_NewRef(global_rank);
    self->known = (int8_t)PyTuple_GET_SIZE(names);
    self->tensor = tensor;
    self->reduce = place_of(form, "reduce");
    self->group = place_of(form, "group");
    self->async_ = place_of(form, "async");
    self->root = place_of(form, "root");
    self->group_root = place_of(form, "group_root");
    self->tag = place_of(form, "tag");
    self->required = required;
    self->zero_root = place_of(form, "zero_root") > 0;
    self->fast = place_of(form, "fast") > 0 && required > tensor;
    self->always_async = place_of(form, "always_async") > 0;
    self->absent = absent & ((1u << self->known) - 1);
    self->direction = direction;
    self->id = ++last_function;
    if (PyErr_Occurred())
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* ------------------------------------------------------------------ a method of handles */

/* `wait` and `is_completed` of torch's Work: straight to C++ unless the handle is followed. A method of Python does the
   rest, and all for subclasses of the job's own: C++ finds overrides by the name of a frame (pybind11). */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function;
    Holder *probe;
    PyTypeObject *kind;
    int waits;
    PyObject *recorded;
    PyObject *dict;
} Method;

/* What is followed of a handle: borrowed, NULL where it is not, or with an exception. */
RARE static PyObject *find_followed(Core *core, PyObject *handle)
{
    PyObject *key = PyLong_FromVoidPtr(handle);
    if (key == NULL)
        return NULL;
    PyObject *found = PyDict_GetItemWithError(core->outstanding, key);
    Py_DECREF(key);
    return found;
}

/* wait() of a handle that is followed, by a thread that has its slot. */
RARE static PyObject *wait_followed(Method *self, Core *core, Thread *thread, Followed *followed, PyObject *const *args, size_t n,
                                    PyObject *names)
{
    uint64_t *slot = core->words + thread->word;
    unsigned generation = hot.forks;
    slot[3] = wall();
    slot[2] = followed->serial;
    PyObject *result = PyObject_Vectorcall(self->function, args, n, names);
    if (hot.forks == generation && self->probe->core == core) {
        slot[2] = 0;
        finish(core, followed->word, followed->serial, result == NULL ? FAILED : 0);
    }
    return result;
}

/* is_completed() of a handle that is followed. */
RARE static PyObject *ask_followed(Method *self, Core *core, PyObject *handle, PyObject *const *args, size_t n, PyObject *names)
{
    unsigned generation = hot.forks;
    PyObject *result = PyObject_Vectorcall(self->function, args, n, names);
    if (result != Py_True || hot.forks != generation || self->probe->core != core)
        return result;
    PyObject *found = find_followed(core, handle); /* unless another thread has waited meanwhile */
    if (found != NULL && Py_IS_TYPE(found, &FollowedType)) {
        Followed *taken = take(core, ((Followed *)found)->key, found);
        if (taken != NULL) {
            finish(core, taken->word, taken->serial, 0);
            Py_DECREF(taken);
        }
    }
    if (PyErr_Occurred())
        Py_CLEAR(result);
    return result;
}

/* A handle of torch's while some are followed. */
RARE static PyObject *method_followed(Method *self, Core *core, PyObject *const *args, size_t n, PyObject *names)
{
    PyObject *handle = args[0], *found = find_followed(core, handle);
    if (found == NULL)
        return PyErr_Occurred() ? NULL : PyObject_Vectorcall(self->function, args, n, names);
    Thread *thread = known_thread();
    if (!Py_IS_TYPE(found, &FollowedType) || thread == NULL || thread->recorder != (PyObject *)core || !has_slot(core, thread))
        return PyObject_Vectorcall(self->recorded, args, n, names);
    PyObject *result;
    Py_INCREF(core);
    Py_INCREF(thread);
    if (self->waits) {
        Followed *taken = take(core, ((Followed *)found)->key, found);
        result = wait_followed(self, core, thread, taken, args, n, names);
        Py_XDECREF(taken);
    }
    else {
        result = ask_followed(self, core, handle, args, n, names);
    }
    Py_DECREF(thread);
    Py_DECREF(core);
    return result;
}

static PyObject *method_vectorcall(PyObject *callable, PyObject *const *args, size_t n, PyObject *names)
{
    Method *self = (Method *)callable;
    if (!LIKELY(PyVectorcall_NARGS(n) > 0 && Py_TYPE(args[0]) == self->kind))
        return PyObject_Vectorcall(self->recorded, args, n, names);
    Core *core = core_of(self->probe);
    if (LIKELY(core == NULL || core->outstanding == NULL || !PyDict_CheckExact(core->outstanding) ||
               PyDict_GET_SIZE(core->outstanding) == 0))
        return PyObject_Vectorcall(self->function, args, n, names);
    return method_followed(self, core, args, n, names);
}

static PyObject *method_get(PyObject *self, PyObject *instance, PyObject *Py_UNUSED(type))
{
    return instance == NULL ? Py_NewRef(self) : PyMethod_New(self, instance);
}

static void method_dealloc(Method *self)
{
    Py_XDECREF(self->function);
    Py_XDECREF(self->recorded);
    Py_XDECREF(self->probe);
    Py_XDECREF(self->kind);
    Py_XDECREF(self->dict);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Method(function, recorded, probe, Work, whether it waits): `function` is torch's own, of C++. */
static PyObject *method_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    PyObject *function, *recorded, *probe, *kind;
    int waits;
    if (!PyArg_ParseTuple(args, "OOO!O!p", &function, &recorded, &HolderType, &probe, &PyType_Type, &kind, &waits))
        return NULL;
    Method *self = (Method *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = method_vectorcall;
    self->function = Py_NewRef(function);
    self->recorded = Py_NewRef(recorded);
    self->probe = (Holder *)Py_NewRef(probe);
    self->kind = (PyTypeObject *)Py_NewRef(kind);
    self->waits = waits;
    if (waits && work_kind == NULL)
        work_kind = (PyTypeObject *)Py_NewRef(kind);
    return (PyObject *)self;
}

/* ------------------------------------------------------------------ the module */

#define TYPE(c_name, python_name, what, doc)                                                                                   \
    static PyTypeObject c_name = {                                                                                             \
        PyVarObject_HEAD_INIT(NULL, 0).tp_name = "hangdoctor.probe.record._record." python_name,                               \
        .tp_basicsize = sizeof(what), .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, .tp_new = PyType_GenericNew, .tp_doc = doc,

TYPE(HolderType, "Holder", Holder, "Whether anything is recorded: its `recorder`, or None.")
    .tp_members = holder_members, .tp_getset = holder_attributes, .tp_methods = holder_methods, .tp_dealloc = (destructor)holder_dealloc};
TYPE(EntryType, "Entry", Entry, "One process group: its numbers.")
    .tp_members = entry_members, .tp_methods = entry_methods, .tp_dealloc = (destructor)entry_dealloc};
TYPE(DirectoryType, "Directory", Directory, "The process groups of a rank.")
    .tp_members = directory_members, .tp_getset = directory_attributes, .tp_dealloc = (destructor)directory_dealloc};
TYPE(ThreadType, "Thread", Thread, "What is kept for each thread.")
    .tp_members = thread_members, .tp_dealloc = (destructor)thread_dealloc};
TYPE(CoreType, "Core", Core, "The ring of one box.")
    .tp_members = core_members, .tp_methods = core_methods, .tp_dealloc = (destructor)core_dealloc};
static PyTypeObject FunctionType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "hangdoctor.probe.record._record.function",
    .tp_base = &PyFunction_Type,
    .tp_basicsize = sizeof(Function),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_HAVE_GC,
    .tp_vectorcall_offset = offsetof(PyFunctionObject, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_dictoffset = offsetof(PyFunctionObject, func_dict),
    .tp_weaklistoffset = offsetof(PyFunctionObject, func_weakreflist),
    .tp_methods = function_methods,
    .tp_members = function_members,
    .tp_new = function_new,
    .tp_traverse = (traverseproc)function_traverse,
    .tp_dealloc = (destructor)function_dealloc,
};
static PyTypeObject FollowedType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "hangdoctor.probe.record._record.Followed",
    .tp_base = &_PyWeakref_RefType,
    .tp_basicsize = sizeof(Followed),
    .tp_as_sequence = &followed_sequence,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_traverse = (traverseproc)followed_traverse,
    .tp_dealloc = (destructor)followed_dealloc,
    .tp_doc = "A handle of torch's that is not waited for yet.",
};

static PyGetSetDef method_attributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyTypeObject MethodType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "hangdoctor.probe.record._record.Method",
    .tp_basicsize = sizeof(Method),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_vectorcall_offset = offsetof(Method, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = method_get,
    .tp_dictoffset = offsetof(Method, dict),
    .tp_getset = method_attributes,
    .tp_new = method_new,
    .tp_dealloc = (destructor)method_dealloc,
};

/* The clock of the kernel's own page, without the C library's way to it, unless something stands in for that. */
static void find_clock(void)
{
    hot.clock = clock_gettime;
#if defined(__GLIBC__) && defined(__x86_64__)
    void *library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), *kernel = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL || kernel == NULL || dlsym(library, "clock_gettime") != (void *)clock_gettime)
        return;
    int (*found)(clockid_t, struct timespec *) = dlvsym(kernel, "__vdso_clock_gettime", "LINUX_2.6");
    struct timespec now;
    if (found != NULL && found(CLOCK_REALTIME, &now) == 0)
        hot.clock = found;
#endif
}

static void *symbol(void *library, const char *name)
{
    return library == NULL ? NULL : dlsym(library, name);
}

/* set_tensor(Tensor, Parameter, shape, dtype, address, mode): the plain types, the getters that all share, and what shows
   whether a function mode is on. */
static PyObject *set_tensor(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *tensor, *parameter, *shape, *dtype, *address, *mode;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!O", &PyType_Type, &tensor, &PyType_Type, &parameter, &PyGetSetDescr_Type, &shape,
                          &PyGetSetDescr_Type, &dtype, &PyGetSetDescr_Type, &address, &mode))
        return NULL;
    if (getters.mode != NULL)
        Py_RETURN_NONE;
    PyTypeObject *owner = PyDescr_TYPE(shape);
    if (!PyType_IsSubtype((PyTypeObject *)tensor, owner) || !PyType_IsSubtype((PyTypeObject *)parameter, owner) ||
        PyDescr_TYPE(dtype) != owner || PyDescr_TYPE(address) != owner) {
        PyErr_SetString(PyExc_TypeError, "getters of another type");
        return NULL;
    }
    /* Kept for good: they are torch's. */
    hot.tensor = (PyTypeObject *)Py_NewRef(tensor);
    hot.parameter = (PyTypeObject *)Py_NewRef(parameter);
    getters.shape = (PyGetSetDescrObject *)Py_NewRef(shape);
    getters.dtype = (PyGetSetDescrObject *)Py_NewRef(dtype);
    getters.address = (PyGetSetDescrObject *)Py_NewRef(address);
    getters.mode = Py_NewRef(mode);
    void *library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    hot.get_dim = (int32_t(*)(void *, int64_t *))symbol(library, "aoti_torch_get_dim");
    hot.get_sizes = (int32_t(*)(void *, int64_t **))symbol(library, "aoti_torch_get_sizes");
    hot.get_dtype = (int32_t(*)(void *, int32_t *))symbol(library, "aoti_torch_get_dtype");
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------------- where the program is */

#define PLACE_BYTES 880 /* `format.py` has the same */
#define PLACE_FRAMES 6  /* innermost ones, whoever's they are; further out the job's own alone */
#define PLACE_DEPTH 256
#define NAME_LENGTH 60
#define FILE_LENGTH 120
#define STATES_MOST 4096
#define THREAD_CLOCK(tid) ((clockid_t)(~(unsigned int)(tid) << 3 | 6)) /* as Linux numbers the CPU clocks of threads */

typedef struct {
    char text[PLACE_BYTES];
    size_t used;
    int frames;
} place_t;

/* The last characters of a text as UTF-8, without those that end a field; returns the bytes. At most 4 for each. */
static size_t put_end(char *into, PyObject *text, Py_ssize_t most)
{
    size_t used = 0;
    if (!PyUnicode_Check(text))
        return 0;
    Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    for (Py_ssize_t i = length > most ? length - most : 0; i < length; i++) {
        Py_UCS4 c = PyUnicode_READ_CHAR(text, i);
        if (c < 0x80) {
            into[used++] = c < 0x20 || c == 0x7F ? ' ' : (char)c;
        } else if (c < 0x800) {
            into[used++] = (char)(0xC0 | c >> 6);
            into[used++] = (char)(0x80 | (c & 0x3F));
        } else if (c >= 0xD800 && c < 0xE000) {
            into[used++] = '?';
        } else if (c < 0x10000) {
            into[used++] = (char)(0xE0 | c >> 12);
            into[used++] = (char)(0x80 | (c >> 6 & 0x3F));
            into[used++] = (char)(0x80 | (c & 0x3F));
        } else {
            into[used++] = (char)(0xF0 | c >> 18);
            into[used++] = (char)(0x80 | (c >> 12 & 0x3F));
            into[used++] = (char)(0x80 | (c >> 6 & 0x3F));
            into[used++] = (char)(0x80 | (c & 0x3F));
        }
    }
    return used;
}

static int is_installed(const char *file)
{
    return file[0] == '<' || strstr(file, "site-packages/") != NULL || strstr(file, "dist-packages/") != NULL ||
           strstr(file, "/lib/python3") != NULL;
}

/* One frame as `name TAB file TAB line`; 0 where there is no room for it, or for any more. */
static int put_frame(place_t *place, PyCodeObject *code, int line)
{
    char field[4 * (NAME_LENGTH + FILE_LENGTH) + 32], *file;
    size_t used = put_end(field, code->co_name, NAME_LENGTH);
    field[used++] = '\t';
    file = field + used;
    used += put_end(file, code->co_filename, FILE_LENGTH);
    field[used] = '\0';
    if (strstr(file, "hangdoctor/probe/") != NULL || (place->frames >= PLACE_FRAMES && is_installed(file)))
        return 1;
    if (line < 1)
        line = code->co_firstlineno; /* instructions of no line, such as those at the end of a loop */
    used += (size_t)snprintf(field + used, 16, "\t%d\n", line);
    if (place->used + used > sizeof place->text)
        return 0;
    memcpy(place->text + place->used, field, used);
    place->used += used;
    place->frames++;
    return 1;
}

#if WITH_FRAMES
static void put_frames(place_t *place, PyThreadState *state)
{
    _PyInterpreterFrame *frame = innermost(state);
    for (int depth = 0; frame != NULL && depth < PLACE_DEPTH; frame = frame->previous, depth++) {
        if (!is_real(frame))
            continue;
        PyCodeObject *code = (PyCodeObject *)code_of(frame);
        int at = _PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT);
        if (!put_frame(place, code, PyCode_Addr2Line(code, at)))
            return;
    }
}
#else
static void put_frames(place_t *place, PyThreadState *state)
{
    PyFrameObject *frame = PyThreadState_GetFrame(state);
    int goes_on = 1;
    for (int depth = 0; frame != NULL; depth++) {
        if (goes_on && depth < PLACE_DEPTH) {
            PyCodeObject *code = PyFrame_GetCode(frame);
            goes_on = put_frame(place, code, PyFrame_GetLineNumber(frame));
            Py_DECREF(code);
        }
        PyFrameObject *outer = goes_on && depth < PLACE_DEPTH ? PyFrame_GetBack(frame) : NULL;
        Py_DECREF(frame); /* it runs, so that its thread has it, too */
        frame = outer;
    }
}
#endif

/* The state of a thread of this process by its number in Linux; NULL where it has none. States come and go with the
   interpreter's lock, which the caller has; those of threads of C come without it, and before the first one. */
static PyThreadState *state_of(unsigned long tid)
{
#if PY_VERSION_HEX >= 0x030B0000
    PyThreadState *state = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
    for (int i = 0; state != NULL && i < STATES_MOST; i++, state = PyThreadState_Next(state))
        if (state->native_thread_id == tid)
            return state;
#else
    (void)tid;
#endif
    return NULL;
}

/* program_place(tid) -> (frames of that thread as lines, the innermost first; ns that it has used of the CPU), None where
   it is unknown; 0: the main thread. No other thread runs meanwhile, and nothing of the job's is kept or called. */
static PyObject *program_place(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long tid = 0;
    clockid_t clock = 0;
    struct timespec used = {0, 0};
    place_t place = {.used = 0, .frames = 0};
    if (!PyArg_ParseTuple(args, "|k", &tid))
        return NULL;
    PyThreadState *state = tid == 0 ? program.state : state_of(tid);
    if (state == NULL)
        Py_RETURN_NONE;
    put_frames(&place, state);
    if (tid != 0)
        clock = THREAD_CLOCK(tid);
    else if (pthread_getcpuclockid(program.thread, &clock) != 0)
        clock = 0;
    if (clock != 0)
        clock_gettime(clock, &used);
    long long spent = (long long)used.tv_sec * 1000000000 + used.tv_nsec;
    return Py_BuildValue("y#L", place.text, (Py_ssize_t)place.used, spent);
}

/* read_proc(path, most) -> the first bytes of a file of procfs, b"" where it cannot be read. Opened, read and closed without
   letting go of the interpreter's lock: a program that closes all descriptors, as daemons do, cannot have opened a file of
   its own under this number before it is closed here. Only for procfs, which keeps nobody waiting. */
static PyObject *read_proc(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *path;
    Py_ssize_t most, used = 0, got;
    if (!PyArg_ParseTuple(args, "yn", &path, &most))
        return NULL;
    PyObject *text = PyBytes_FromStringAndSize(NULL, most);
    if (text == NULL)
        return NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        while (used < most && (got = read(fd, PyBytes_AS_STRING(text) + used, (size_t)(most - used))) > 0)
            used += got;
        close(fd);
    }
    _PyBytes_Resize(&text, used);
    return text;
}

#if WITH_FRAMES
#if PY_VERSION_HEX < 0x030C0000
#define interpreter_lock() (&_PyRuntime.ceval.gil)
#else
#define interpreter_lock() (PyInterpreterState_Main()->ceval.gil)
#endif

/* lock_switches() -> how often the interpreter's lock has passed from one thread to another; None where this interpreter
   keeps it otherwise. The same number twice, asked by one thread: no other one has run Python in between. */
static PyObject *lock_switches(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    const void *last;
    memcpy(&last, &interpreter_lock()->last_holder, sizeof last);
    if (last != PyThreadState_Get()) /* who asks has it: the field lies elsewhere */
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLong(interpreter_lock()->switch_number);
}

#define NUMBERS_BYTES 240 /* of the line in the box */
#define NUMBERS_LENGTH 24 /* of a name: longer ones are left out */
#define NUMBERS_MOST 4096 /* names that are looked at */
#define STACKS_BYTES 65536
#define STACKS_THREADS 64
#define STACKS_FRAMES 48 /* of a thread, the innermost ones */

typedef struct {
    char *text;
    size_t room, used;
    int lengths; /* of lists and tuples, too */
} numbers_t;

static int put_text(numbers_t *into, const char *text, size_t length)
{
    if (into->used + length > into->room)
        return 0;
    memcpy(into->text + into->used, text, length);
    into->used += length;
    return 1;
}

/* `name=value ` of a whole number of 32 bits, `name=[length] ` of a list; nothing for any other object. */
static void put_number(numbers_t *into, PyObject *name, PyObject *value)
{
    int overflow = 0, is_list;
    char field[4 * NUMBERS_LENGTH + 24];
    if (value == NULL || name == NULL || !PyUnicode_CheckExact(name) || PyUnicode_GET_LENGTH(name) > NUMBERS_LENGTH)
        return;
    is_list = into->lengths && (PyList_CheckExact(value) || PyTuple_CheckExact(value));
    if (!is_list && !PyLong_CheckExact(value))
        return;
    long number = is_list ? (long)Py_SIZE(value) : PyLong_AsLongAndOverflow(value, &overflow);
    if (overflow || number < INT32_MIN || number > INT32_MAX)
        return;
    size_t used = put_end(field, name, NUMBERS_LENGTH);
    used += (size_t)snprintf(field + used, 24, is_list ? "=[%ld] " : "=%ld ", number);
    put_text(into, field, used);
}

static void put_numbers(numbers_t *into, _PyInterpreterFrame *frame)
{
    PyCodeObject *code = (PyCodeObject *)code_of(frame);
    if (code->co_flags & CO_OPTIMIZED) {
        for (int i = 0; i < code->co_nlocals && i < NUMBERS_MOST; i++)
            put_number(into, PyTuple_GET_ITEM(code->co_localsplusnames, i), frame->localsplus[i]);
    } else if (frame->f_globals != NULL && PyDict_CheckExact(frame->f_globals)) { /* of a module */
        PyObject *name, *value;
        Py_ssize_t at = 0;
        for (int i = 0; i < NUMBERS_MOST && PyDict_Next(frame->f_globals, &at, &name, &value); i++)
            put_number(into, name, value);
    }
}

/* program_numbers() -> whole numbers among the variables of the main thread's innermost frame, `name=value name=value `. */
static PyObject *program_numbers(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    char text[NUMBERS_BYTES];
    numbers_t into = {.text = text, .room = sizeof text};
    _PyInterpreterFrame *frame = program.state == NULL ? NULL : innermost(program.state);
    while (frame != NULL && !is_real(frame))
        frame = frame->previous;
    if (frame == NULL)
        return PyBytes_FromStringAndSize(NULL, 0);
    put_numbers(&into, frame);
    return PyBytes_FromStringAndSize(into.text, (Py_ssize_t)into.used);
}

/* Of the functions that are not torch's or Python's own, and of torch's schedules, whose lists say how many micro-batches. */
static int has_numbers(PyCodeObject *code)
{
    const char *file = PyUnicode_AsUTF8(code->co_filename);
    if (file == NULL)
        PyErr_Clear();
    return file != NULL && (!is_installed(file) || strstr(file, "pipelin") != NULL);
}

/* One frame as `name TAB file TAB line`, the next line its numbers behind two TAB; 0 where there is no room. */
static int put_whole_frame(numbers_t *into, _PyInterpreterFrame *frame)
{
    char field[4 * (NAME_LENGTH + FILE_LENGTH) + 32];
    PyCodeObject *code = (PyCodeObject *)code_of(frame);
    int line = PyCode_Addr2Line(code, _PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT));
    size_t used = put_end(field, code->co_qualname, NAME_LENGTH);
    field[used++] = '\t';
    used += put_end(field + used, code->co_filename, FILE_LENGTH);
    used += (size_t)snprintf(field + used, 16, "\t%d\n", line < 1 ? code->co_firstlineno : line);
    if (!put_text(into, field, used))
        return 0;
    size_t before = into->used;
    if (has_numbers(code) && put_text(into, "\t\t", 2)) {
        put_numbers(into, frame);
        if (into->used == before + 2 || !put_text(into, "\n", 1))
            into->used = before;
    }
    return 1;
}

/* program_stacks() -> the stacks of all other threads of the interpreter, the innermost frame first, each behind a line
   `TAB TAB (thread)=number`. No other thread runs meanwhile, and nothing of the job's is kept or called. */
static PyObject *program_stacks(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *found, *text = PyBytes_FromStringAndSize(NULL, STACKS_BYTES);
    if (text == NULL)
        return NULL;
    numbers_t into = {.text = PyBytes_AS_STRING(text), .room = STACKS_BYTES, .lengths = 1};
    PyThreadState *own = PyThreadState_Get(), *state = PyInterpreterState_ThreadHead(PyInterpreterState_Main());
    for (int i = 0; state != NULL && i < STACKS_THREADS; i++, state = PyThreadState_Next(state)) {
        char head[48];
        int depth = 0;
        _PyInterpreterFrame *frame = state == own ? NULL : innermost(state);
        if (frame == NULL || !put_text(&into, head, (size_t)snprintf(head, sizeof head, "\t\t(thread)=%lu\n", state->native_thread_id)))
            continue;
        for (; frame != NULL && depth < STACKS_FRAMES; frame = frame->previous)
            if (is_real(frame) && (depth++, !put_whole_frame(&into, frame)))
                break;
    }
    found = PyBytes_FromStringAndSize(into.text, (Py_ssize_t)into.used);
    Py_DECREF(text);
    return found;
}
#endif

/* ---------------------------------------------------------------------- a sign of life without the interpreter's lock */

#define PULSE_OFFSET 124 /* of the header, u32 each: `format.py` has the same */
#define HELD_OFFSET 2060
#define PULSE_STACK (256 << 10)
#define LATE 30 /* tenths of a second: the process did not run meanwhile */
#define NOT_KNOWN UINT32_MAX

static struct {
    Py_buffer box; /* never given back: the mapping lasts as long as the process */
    int64_t made;  /* CLOCK_MONOTONIC, ns: when the box was */
    pthread_mutex_t mutex;
    pthread_cond_t over; /* what it sleeps on: the call that the heartbeat sleeps in, too */
    int runs, ends;
#if WITH_FRAMES
    const struct _gil_runtime_state *lock;
#endif
} pulse;

static int64_t monotonic(struct timespec *now)
{
    clock_gettime(CLOCK_MONOTONIC, now);
    return (int64_t)now->tv_sec * 1000000000 + now->tv_nsec;
}

/* Tenths of a second since the box was made, and one. */
static uint32_t tenths(int64_t now)
{
    return now < pulse.made ? 1 : (uint32_t)((now - pulse.made) / 100000000 + 1);
}

/* The interpreter's lock as it is now: 0 where it is free, and how often it has changed hands. Read without it: a number that
   is written meanwhile is one of a lock that changes hands. */
static int is_held(unsigned long *switches)
{
#if WITH_FRAMES
    int locked;
    memcpy(&locked, &pulse.lock->locked, sizeof locked);
    *switches = *(volatile const unsigned long *)&pulse.lock->switch_number;
    return locked == 1;
#else
    *switches = 0;
    return -1;
#endif
}

/* No interpreter, no memory, no lock but its own, and no variable of the thread. */
static void *beat_on(void *Py_UNUSED(argument))
{
    volatile uint32_t *beat = (volatile uint32_t *)((char *)pulse.box.buf + PULSE_OFFSET);
    volatile uint32_t *held = (volatile uint32_t *)((char *)pulse.box.buf + HELD_OFFSET);
    struct timespec until;
    unsigned long switches = 0, before = 0;
    uint32_t since = 0, last = 0;
    pthread_mutex_lock(&pulse.mutex);
    while (!pulse.ends) {
        uint32_t now = tenths(monotonic(&until));
        int locked = is_held(&switches);
        /* The last holder takes it again without a switch: `since` begins anew from a free lock, too. */
        if (locked < 1 || since == 0 || switches != before || now > last + LATE)
            since = locked == 1 ? now : 0;
        before = switches;
        last = now;
        *held = locked < 0 ? NOT_KNOWN : since;
        *beat = now;
        until.tv_sec++;
        while (!pulse.ends && pthread_cond_timedwait(&pulse.over, &pulse.mutex, &until) == 0)
            ;
    }
    pthread_mutex_unlock(&pulse.mutex);
    return NULL;
}

static int start_pulse(void)
{
    pthread_t thread;
    pthread_attr_t how;
    pthread_condattr_t clock;
    sigset_t every, before;
    int failed;
    pthread_mutex_init(&pulse.mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&pulse.over, &clock);
    pulse.ends = 0;
    pthread_condattr_destroy(&clock);
    if (pthread_attr_init(&how) != 0)
        return 0;
    sigfillset(&every);
    failed = pthread_attr_setstacksize(&how, PULSE_STACK) || pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED) ||
             pthread_sigmask(SIG_BLOCK, &every, &before);
    if (!failed) {
        failed = pthread_create(&thread, &how, beat_on, NULL); /* a limit of threads or of memory: the job does without */
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_attr_destroy(&how);
    return !failed;
}

/* keep_pulse(box, made) -> whether a thread writes from now on that the process runs, and whether its lock is held. `box`: the
   mapping; `made`: CLOCK_MONOTONIC in ns. A forked child has none, and may start its own. */
static PyObject *keep_pulse(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *box;
    long long made;
    if (!PyArg_ParseTuple(args, "OL", &box, &made))
        return NULL;
    if (pulse.runs)
        Py_RETURN_FALSE;
    if (PyObject_GetBuffer(box, &pulse.box, PyBUF_WRITABLE) < 0)
        return NULL;
    pulse.made = made;
#if WITH_FRAMES
    pulse.lock = interpreter_lock();
#endif
    pulse.runs = pulse.box.len > HELD_OFFSET + 4 && start_pulse();
    if (!pulse.runs)
        PyBuffer_Release(&pulse.box);
    return PyBool_FromLong(pulse.runs);
}

/* end_pulse(): the thread ends, before the interpreter is taken down: a process whose main thread is ended by pthread_exit then,
   as CPython does now and then, is over when its last thread is. */
static PyObject *end_pulse(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (pulse.runs) {
        pthread_mutex_lock(&pulse.mutex);
        pulse.ends = 1;
        pthread_cond_signal(&pulse.over);
        pthread_mutex_unlock(&pulse.mutex);
    }
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------------- when a signal came for a handler of the program */

#define NOTED 8 /* `format.py` has the same, in this order */

static const int noted[NOTED] = {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGXCPU};

static struct {
    Py_buffer box;           /* never given back, as that of the pulse */
    volatile uint64_t *into; /* of each the first time and the last one, wall clock in ns; NULL: none is written */
    pid_t process;
    void (*handler[NOTED])(int); /* CPython's, which runs the program's later */
} came;

/* In front of CPython's own handler: writes the time, and does what that does. */
static void note_signal(int number)
{
    volatile uint64_t *into = came.into;
    int which = 0, error = errno;
    while (which < NOTED - 1 && noted[which] != number)
        which++;
    if (into != NULL && getpid() == came.process) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        uint64_t at = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
        if (into[2 * which] == 0)
            into[2 * which] = at;
        into[2 * which + 1] = at;
    }
    errno = error;
    came.handler[which](number);
}

/* note_signals(box, offset): from now on the times of signals go there. */
static PyObject *note_signals(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *box;
    Py_ssize_t offset;
    if (!PyArg_ParseTuple(args, "On", &box, &offset))
        return NULL;
    came.into = NULL;
    if (PyObject_GetBuffer(box, &came.box, PyBUF_WRITABLE) < 0)
        return NULL;
    if (offset < 0 || offset % 8 != 0 || offset + NOTED * 16 > came.box.len) {
        PyBuffer_Release(&came.box);
        Py_RETURN_NONE;
    }
    came.process = getpid();
    came.into = (volatile uint64_t *)((char *)came.box.buf + offset);
    Py_RETURN_NONE;
}

/* watch_signal(which) -> whether its times are written from now on. Only in front of the handler that CPython itself has put
   there for one of the program: not of a default action, of what is ignored, of faulthandler (SA_RESTART), nor of C code,
   which may call the one before it. The program's `signal.signal` puts CPython's back, as it would without. */
static PyObject *watch_signal(PyObject *Py_UNUSED(module), PyObject *index)
{
    long which = PyLong_AsLong(index);
    struct sigaction now, ours, before;
    Dl_info its, python;
    if (which < 0 || which >= NOTED)
        return PyErr_Occurred() ? NULL : PyBool_FromLong(0);
    if (sigaction(noted[which], NULL, &now) != 0 || now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN ||
        now.sa_flags & (SA_SIGINFO | SA_RESTART | SA_NODEFER | (int)SA_RESETHAND))
        Py_RETURN_FALSE;
    if (now.sa_handler == note_signal)
        Py_RETURN_TRUE;
    if (!dladdr((void *)now.sa_handler, &its) || !dladdr((void *)PyOS_getsig, &python) || its.dli_fbase != python.dli_fbase)
        Py_RETURN_FALSE;
    came.handler[which] = now.sa_handler;
    ours = now;
    ours.sa_handler = note_signal;
    if (sigaction(noted[which], &ours, &before) != 0)
        Py_RETURN_FALSE;
    if (before.sa_handler != now.sa_handler) { /* C code has put its own there meanwhile */
        sigaction(noted[which], &before, NULL);
        Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

static PyMethodDef methods[] = {
    {"end_pulse", end_pulse, METH_NOARGS, "Show none any more."},
    {"keep_pulse", keep_pulse, METH_VARARGS, "Show signs of life that need no interpreter."},
    {"note_signals", note_signals, METH_VARARGS, "Where the times of signals go."},
    {"watch_signal", watch_signal, METH_O, "Write the times of one that the program handles."},
    {"program_place", program_place, METH_VARARGS, "Where a thread is."},
    {"read_proc", read_proc, METH_VARARGS, "The beginning of a file of procfs."},
#if WITH_FRAMES
    {"lock_switches", lock_switches, METH_NOARGS, "How often the interpreter's lock has changed hands."},
    {"program_numbers", program_numbers, METH_NOARGS, "Whole numbers of the main thread's innermost frame."},
    {"program_stacks", program_stacks, METH_NOARGS, "Where all other threads are."},
#endif
    {"set_tensor", set_tensor, METH_VARARGS, "How a plain tensor shows its shape and dtype."},
    {"when_dropped", on_drop, METH_O, "The job has let go of a handle."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_record", "The hot path of the black box.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__record(void)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "for the main interpreter alone");
        return NULL;
    }
    PyTypeObject *types[] = {&HolderType, &EntryType, &DirectoryType, &ThreadType, &CoreType, &FunctionType, &MethodType, &FollowedType};
    const char *names[] = {"Holder", "Entry", "Directory", "Thread", "Core", "Function", "Method", "Followed"};
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    find_clock();
    hot.none = Py_None;
    hot.yes = Py_True;
    hot.no = Py_False;
#if WITH_FRAMES && PY_VERSION_HEX < 0x030C0000
    hot.current = &_PyRuntime.gilstate.tstate_current;
    if (current_state() != PyThreadState_Get())
        goto bad; /* another build of this version keeps it elsewhere */
#endif
    FunctionType.tp_clear = PyFunction_Type.tp_clear; /* its cycles go through what the base has */
    FollowedType.tp_clear = _PyWeakref_RefType.tp_clear;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (PyType_Ready(types[i]) < 0 || PyModule_AddObjectRef(module, names[i], (PyObject *)types[i]) < 0)
            goto bad;
    struct {
        PyObject **into;
        const char *text;
    } texts[] = {
        {&name_fail, "fail"},     {&name_describe_call, "describe_call"}, {&name_enlist, "enlist"},
        {&name_judge, "judge"},       {&name_locate, "locate"}, {&name_find, "find"},
        {&name_learn_iteration, "learn_iteration"}, {&name_learn_micro_batch, "learn_micro_batch"},
        {&name_learn_step, "learn_step"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if ((*texts[i].into = PyUnicode_InternFromString(texts[i].text)) == NULL)
            goto bad;
    when_dropped = PyObject_GetAttrString(module, "when_dropped");
    if (when_dropped == NULL)
        goto bad;
    if (pthread_key_create(&own_key, NULL) != 0)
        goto bad;
    if (syscall(SYS_gettid) == getpid()) {
        program.state = PyThreadState_Get();
        program.thread = pthread_self();
    }
    pulse_runs = &pulse.runs;
    pthread_atfork(NULL, NULL, in_child);
    return module;
bad: /* an interpreter that makes types otherwise: the probe does without */
    Py_DECREF(module);
    PyErr_SetString(PyExc_ImportError, "not for this interpreter");
    return NULL;
}

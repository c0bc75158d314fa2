/* The hot path of the black box: one call of torch.distributed, recorded. `wrap.py` has the same in Python, and both
   write the same bytes (`format.py`); what is rare is asked of Python here.

   Runs under the interpreter's lock, which serialises the writers. No slot of the ring is taken before everything that
   can run Python code (and a signal handler of the job with it) is done: a record is written in one go. */

#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE 1 /* for the interpreter's frames, see `walk` */
#include <Python.h>
#include <dlfcn.h>
#include <frameobject.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

#ifdef Py_GIL_DISABLED
#error "the interpreter's lock serialises the writers: not for free-threaded builds"
#endif
#if PY_VERSION_HEX >= 0x030B0000
#define last_instruction PyFrame_GetLasti
#else
#define last_instruction(frame) ((frame)->f_lasti)
#endif

/* Frames without their Python objects, which cost an allocation each: only where this interpreter's layout is known. */
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000 && __has_include(<internal/pycore_frame.h>)
#include <internal/pycore_frame.h>
#define WITH_FRAMES 1
#else
#define WITH_FRAMES 0
#endif

#define RARE __attribute__((cold, noinline)) /* kept away from the hot path: every line of it is a miss in a training */
#define RECORD_WORDS 16
#define NO_GROUP 0xFFFFFFFFu
#define FLAG_ASYNC 1u
#define FLAG_RECV 4u
#define FLAG_MARK 32u
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
#define SIGNATURES 1024 /* powers of two */
#define SITES 512
#define CODES 512
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
    int64_t ndim, dims[DIMENSIONS];
} signature_t;

typedef struct {
    PyObject *code; /* kept alive by `Sites` */
    int64_t at;     /* the instruction; for a code alone 1 where it is skipped on the way to the call site */
    int64_t site;
} site_t;

/* ------------------------------------------------------------------ what Python subclasses */

typedef struct { /* base of Probe */
    PyObject_HEAD
    PyObject *recorder, *tracer;
} Holder;

typedef struct { /* base of GroupEntry */
    PyObject_HEAD
    uint64_t seq, uid_word;
    uint32_t index;
} Entry;

typedef struct { /* base of Groups */
    PyObject_HEAD
    PyObject *by_id, *standard;
} Directory;

typedef struct { /* what is kept for each thread */
    PyObject_HEAD
    PyObject *recorder, *coalesced;
    Py_ssize_t word;
    int depth, index;
} Thread;

typedef struct { /* base of Recorder */
    PyObject_HEAD
    Py_buffer map;
    uint64_t serial, first, mask, records;
    uint64_t steps;
    int iteration;
    char careful;
    PyObject *groups, *outstanding;
    signature_t *signatures;
    site_t *sites, *codes;
} Core;

static PyTypeObject HolderType, EntryType, DirectoryType, ThreadType, CoreType, CallType, MethodType;

static __thread struct {
    Thread *thread; /* not owned: its end clears this */
    uint64_t state; /* the thread state that it belongs to */
} here;
static unsigned forks;
static PyObject *name_learn_iteration, *name_learn_micro_batch, *name_learn_step;
static PyObject *name_fail, *name_describe_call, *name_enlist, *name_judge, *name_locate, *name_find;
static PyObject *one, *getframe;

static void in_child(void)
{
    forks++;
    here.thread = NULL;
}

static void thread_dealloc(Thread *self)
{
    if (here.thread == self)
        here.thread = NULL;
    Py_XDECREF(self->recorder);
    Py_XDECREF(self->coalesced);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static void holder_dealloc(Holder *self)
{
    Py_XDECREF(self->recorder);
    Py_XDECREF(self->tracer);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static void directory_dealloc(Directory *self)
{
    Py_XDECREF(self->by_id);
    Py_XDECREF(self->standard);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static void core_dealloc(Core *self)
{
    if (self->map.obj != NULL)
        PyBuffer_Release(&self->map);
    Py_XDECREF(self->groups);
    Py_XDECREF(self->outstanding);
    PyMem_Free(self->signatures);
    PyMem_Free(self->sites);
    PyMem_Free(self->codes);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef holder_members[] = {
    {"recorder", T_OBJECT, offsetof(Holder, recorder), 0, NULL},
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
    {"default", T_OBJECT, offsetof(Directory, standard), 0, NULL},
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
    self->signatures = PyMem_Calloc(SIGNATURES, sizeof(signature_t));
    self->sites = PyMem_Calloc(SITES, sizeof(site_t));
    self->codes = PyMem_Calloc(CODES, sizeof(site_t));
    if (!self->signatures || !self->sites || !self->codes) {
        PyBuffer_Release(&self->map);
        return PyErr_NoMemory();
    }
    self->first = (uint64_t)first;
    self->records = (uint64_t)records;
    self->mask = self->records - 1;
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
    if (n != 4 || self->map.obj == NULL) {
        PyErr_SetString(PyExc_TypeError, "write_mark(thread, kind, number, text)");
        return NULL;
    }
    long thread = PyLong_AsLong(args[0]), kind = PyLong_AsLong(args[1]), text = PyLong_AsLong(args[3]);
    long long number = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    return PyLong_FromUnsignedLongLong(mark(self, (int)thread, (int)kind, number, (uint32_t)text));
}

/* The recorder and this thread's slot where both are known and calls are not traced: the rest is Python's. */
static Core *ready(Holder *self, Thread **thread)
{
    Core *core = (Core *)self->recorder;
    if (core == NULL || !PyObject_TypeCheck((PyObject *)core, &CoreType) || core->map.obj == NULL ||
        (self->tracer != NULL && self->tracer != Py_None))
        return NULL;
    *thread = here.state == PyThreadState_GetID(PyThreadState_Get()) ? here.thread : NULL;
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
    uint64_t *words = core->map.buf;
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
    uint64_t *words = core->map.buf;
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

static PyMethodDef core_methods[] = {
    {"write_mark", (PyCFunction)(void (*)(void))core_write_mark, METH_FASTCALL, "What the job says of itself."},
    {"attach", (PyCFunction)core_attach, METH_VARARGS, "Where records go."},
    {"next_serial", (PyCFunction)core_next_serial, METH_NOARGS, "The number of the next record."},
    {NULL, NULL, 0, NULL},
};

/* ------------------------------------------------------------------ one wrapped function */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function, *slow, *probe, *describe;
    PyObject *thread_of, *returned, *refused, *global_rank;
    PyObject *names;                 /* of the parameters that the probe knows */
    int tensor, reduce, group, async_, root, group_root; /* places of parameters, -1 for none */
    int required, zero_root, fast;   /* fast: tensor, dtype and reduce op are the whole signature */
    uint32_t absent;                 /* places that must not be given, or the call is described in Python */
    uint32_t direction;              /* SEND, RECV, or 0 for a collective */
    int always_async;
    uint32_t id;
} Call;

static uint32_t last_call;
static struct { /* of torch: how a plain tensor shows its shape, see `set_tensor` */
    PyTypeObject *tensor, *parameter;
    PyGetSetDescrObject *shape, *dtype;
    PyObject *mode;
    /* Torch's own C functions, which run no code of the job; used once a tensor has shown that they tell the same (`compare`). */
    int32_t (*get_dim)(void *, int64_t *), (*get_sizes)(void *, int64_t **), (*get_dtype)(void *, int32_t *);
    PyGetSetDescrObject *address;
    size_t handle; /* where a tensor's object has its C++ tensor; 0 until known */
    void *kind;    /* the C++ class of dense tensors */
} T;

static inline uint64_t wall(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

RARE static Thread *learn_thread(Call *self, uint64_t state)
{
    PyObject *found = PyObject_CallNoArgs(self->thread_of);
    if (found == NULL)
        return NULL;
    if (!PyObject_TypeCheck(found, &ThreadType)) {
        Py_DECREF(found);
        PyErr_SetString(PyExc_TypeError, "no Thread");
        return NULL;
    }
    here.thread = (Thread *)found;
    here.state = state;
    return (Thread *)found;
}

static inline Thread *current_thread(Call *self)
{
    uint64_t state = PyThreadState_GetID(PyThreadState_Get());
    return here.thread != NULL && here.state == state ? (Thread *)Py_NewRef(here.thread) : learn_thread(self, state);
}

/* What a call says, as far as it is understood here. References are borrowed from the arguments. */
typedef struct {
    PyObject *at[PARAMETERS];
    PyObject *group, *root, *group_root; /* NULL for None */
    PyObject *owner;                     /* keeps them alive where Python described the call */
    int64_t signature;                   /* -1: described in Python, without room for it */
    int async_;
} said_t;

/* Sort arguments by parameter: 0 where Python must describe the call (or torch refuse it). */
static int bind(Call *self, PyObject *args, PyObject *kwargs, said_t *said)
{
    Py_ssize_t n = PyTuple_GET_SIZE(args), known = PyTuple_GET_SIZE(self->names);
    if (n > known)
        return 0;
    for (Py_ssize_t i = 0; i < n; i++)
        said->at[i] = PyTuple_GET_ITEM(args, i);
    PyObject *name, *value;
    Py_ssize_t place = 0;
    while (PyDict_Next(kwargs, &place, &name, &value)) {
        Py_ssize_t i = 0;
        while (i < known && PyTuple_GET_ITEM(self->names, i) != name)
            i++;
        if (i == known || said->at[i] != NULL)
            return 0;
        said->at[i] = value;
    }
    for (int i = 0; i < self->required; i++)
        if (said->at[i] == NULL)
            return 0;
    for (int i = 0; i < (int)known; i++)
        if ((self->absent >> i & 1) && said->at[i] != NULL && said->at[i] != Py_None)
            return 0;
    return 1;
}

static inline PyObject *given(said_t *said, int place)
{
    PyObject *found = place < 0 ? NULL : said->at[place];
    return found == Py_None ? NULL : found;
}

#define TENSOR_SEARCHED 64

/* Shape and dtype without asking Python: of dense tensors, whose C++ class is the one that was compared. */
static inline int look_inside(PyObject *tensor, signature_t *key)
{
    void **handle = (void **)((char *)tensor + T.handle);
    int64_t ndim, *sizes;
    int32_t dtype;
    if (*handle == NULL || *(void **)*handle != T.kind || T.get_dim(handle, &ndim) || ndim > DIMENSIONS ||
        T.get_sizes(handle, &sizes) || T.get_dtype(handle, &dtype))
        return 0;
    key->ndim = ndim;
    for (int64_t i = 0; i < ndim; i++)
        key->dims[i] = sizes[i];
    key->dtype = (PyObject *)(intptr_t)(dtype + 1);
    return 1;
}

/* Find out where this torch keeps the C++ tensor, by a tensor whose shape is known. */
RARE static void compare(PyObject *tensor, const signature_t *known)
{
    if (T.handle != 0 || T.address == NULL || T.get_dim == NULL || T.get_sizes == NULL || T.get_dtype == NULL)
        return;
    PyObject *told = T.address->d_getset->get(tensor, T.address->d_getset->closure);
    void *address = told == NULL ? NULL : PyLong_AsVoidPtr(told);
    Py_XDECREF(told);
    PyErr_Clear();
    size_t most = Py_MIN((size_t)Py_TYPE(tensor)->tp_basicsize, TENSOR_SEARCHED);
    for (size_t at = sizeof(PyObject); address != NULL && at + sizeof(void *) <= most; at += sizeof(void *)) {
        if (*(void **)((char *)tensor + at) != address)
            continue;
        signature_t seen = {.call = 0};
        T.handle = at;
        T.kind = *(void **)address;
        if (!look_inside(tensor, &seen) || seen.ndim != known->ndim ||
            memcmp(seen.dims, known->dims, (size_t)seen.ndim * 8) != 0) {
            T.handle = 0;
            T.address = NULL; /* another torch: its getters will do */
        }
        return;
    }
}

/* Shape and dtype of a plain tensor, by torch's own getters; 0 where Python must tell. A function mode of the job would be
   asked by them: then they are not called here. */
static int look_at(PyObject *tensor, signature_t *key)
{
    PyTypeObject *type = Py_TYPE(tensor);
    if ((type != T.tensor && type != T.parameter) || T.mode == NULL)
        return 0;
    if (T.handle != 0 && look_inside(tensor, key))
        return 1;
    PyObject *mode = PyObject_CallNoArgs(T.mode);
    int plain = mode == Py_False;
    Py_XDECREF(mode);
    if (!plain) {
        PyErr_Clear();
        return 0;
    }
    PyObject *shape = T.shape->d_getset->get(tensor, T.shape->d_getset->closure);
    if (shape == NULL || !PyTuple_Check(shape) || PyTuple_GET_SIZE(shape) > DIMENSIONS) {
        PyErr_Clear();
        Py_XDECREF(shape);
        return 0;
    }
    key->ndim = PyTuple_GET_SIZE(shape);
    int whole = 1;
    for (Py_ssize_t i = 0; i < key->ndim && whole; i++) {
        PyObject *size = PyTuple_GET_ITEM(shape, i);
        int over = 0;
        whole = PyLong_CheckExact(size);
        if (whole)
            key->dims[i] = PyLong_AsLongLongAndOverflow(size, &over);
        whole = whole && !over;
    }
    Py_DECREF(shape);
    if (!whole)
        return 0;
    key->dtype = T.dtype->d_getset->get(tensor, T.dtype->d_getset->closure);
    if (key->dtype == NULL) {
        PyErr_Clear();
        return 0;
    }
    Py_DECREF(key->dtype); /* torch keeps its dtypes */
    compare(tensor, key);
    return 1;
}

static inline uint64_t mix(uint64_t h, uint64_t x)
{
    h ^= x;
    h *= 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

/* Where a signature is remembered, or would be: `*found` says which. */
static signature_t *signature_place(Core *core, const signature_t *key, int *found)
{
    uint64_t h = mix(mix(key->call, (uint64_t)(uintptr_t)key->dtype), (uint64_t)(uintptr_t)key->reduce);
    for (int i = 0; i < key->ndim; i++)
        h = mix(h, (uint64_t)key->dims[i]);
    signature_t *first = &core->signatures[h & (SIGNATURES - 1)];
    for (int i = 0; i < PROBES; i++) {
        signature_t *place = &core->signatures[(h + (uint64_t)i) & (SIGNATURES - 1)];
        if (place->call == 0) {
            *found = 0;
            return place;
        }
        if (place->call == key->call && place->dtype == key->dtype && place->reduce == key->reduce &&
            place->ndim == key->ndim && memcmp(place->dims, key->dims, (size_t)key->ndim * 8) == 0) {
            *found = 1;
            return place;
        }
    }
    *found = 0;
    return first;
}

/* Let Python describe the call: 1 done, 0 no operation, -1 an exception. */
RARE static int ask(Core *core, Call *self, PyObject *args, PyObject *kwargs, PyObject *reduce, said_t *said, int *remember)
{
    PyObject *stack[] = {(PyObject *)core, self->describe, args, kwargs, reduce ? reduce : Py_None};
    PyObject *told = PyObject_VectorcallMethod(name_describe_call, stack, 5, NULL);
    if (told == NULL)
        return -1;
    if (told == Py_None) {
        Py_DECREF(told);
        return 0;
    }
    if (!PyTuple_CheckExact(told) || PyTuple_GET_SIZE(told) != 6) {
        Py_DECREF(told);
        PyErr_SetString(PyExc_TypeError, "no description");
        return -1;
    }
    said->owner = told;
    said->signature = PyLong_AsLongLong(PyTuple_GET_ITEM(told, 0));
    PyObject **into[] = {&said->group, &said->root, &said->group_root};
    for (int i = 0; i < 3; i++) {
        PyObject *item = PyTuple_GET_ITEM(told, i + 1);
        *into[i] = item == Py_None ? NULL : item;
    }
    said->async_ = PyObject_IsTrue(PyTuple_GET_ITEM(told, 4));
    *remember = PyTuple_GET_ITEM(told, 5) == Py_True;
    return PyErr_Occurred() ? -1 : 1;
}

/* What the call is about: 1, 0 where it is no operation, -1 with an exception. */
static int describe(Core *core, Call *self, PyObject *args, PyObject *kwargs, said_t *said)
{
    int bound = self->fast && bind(self, args, kwargs, said), remember = 0, found = 0;
    signature_t key = {.call = self->id};
    if (bound) {
        key.reduce = given(said, self->reduce);
        PyObject *asynchronous = self->async_ < 0 ? NULL : said->at[self->async_];
        bound = asynchronous == NULL || PyBool_Check(asynchronous);
        if (bound && self->tensor >= 0)
            bound = look_at(said->at[self->tensor], &key);
        if (bound) {
            signature_t *place = signature_place(core, &key, &found);
            if (found) {
                said->signature = place->signature;
                said->group = given(said, self->group);
                said->root = given(said, self->root);
                said->group_root = given(said, self->group_root);
                said->async_ = self->always_async || asynchronous == Py_True;
                return 1;
            }
        }
    }
    int done = ask(core, self, args, kwargs, bound ? key.reduce : NULL, said, &remember);
    if (done == 1 && bound && remember && said->signature > 0) {
        signature_t *place = signature_place(core, &key, &found);
        key.signature = (uint32_t)said->signature;
        *place = key;
    }
    return done;
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
        *site_place(core->codes, CODES, code, 0, &found) = (site_t){code, 0, told};
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
/* The frame above the wrapper's own, as an object: a new reference, NULL for none. */
RARE static PyObject *calling_frame(void)
{
    PyObject *caller = PyObject_Vectorcall(getframe, &one, 1, NULL);
    if (caller == NULL && PyErr_ExceptionMatches(PyExc_ValueError)) { /* called by C alone: a hook, in autograd's thread */
        PyErr_Clear();
        caller = Py_XNewRef((PyObject *)PyEval_GetFrame());
    }
    return caller;
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

static int walk(Core *core, spot_t *spot)
{
    _PyInterpreterFrame *frame = innermost(PyThreadState_Get());
    for (int depth = 0; frame != NULL; frame = frame->previous) {
        if (!is_real(frame) || depth++ == 0) /* the first is the wrapper's */
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
static int walk(Core *core, spot_t *spot)
{
    PyFrameObject *frame = (PyFrameObject *)calling_frame();
    if (frame == NULL)
        return PyErr_Occurred() ? -1 : 0;
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
    PyObject *caller = calling_frame();
    if (caller == NULL)
        return PyErr_Occurred() ? -1 : 0;
    PyObject *stack[] = {(PyObject *)core, caller, spot.code ? spot.code : Py_None};
    PyObject *told = PyObject_VectorcallMethod(name_locate, stack, 3, NULL);
    int64_t site = told == NULL ? -1 : PyLong_AsLongLong(told); /* twice the id, plus 1 where it may be remembered */
    Py_XDECREF(told);
    Py_DECREF(caller);
    if (site > 0 && (site & 1) && seen > 0)
        *site_place(core->sites, SITES, spot.code, spot.at, &found) = (site_t){spot.code, spot.at, site >> 1};
    return site < 0 ? site : site >> 1;
}

/* Id of the call site: the innermost frame that is not skipped. -1 with an exception. */
static int64_t find_site(Core *core)
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

/* ------------------------------------------------------------------ groups and peers */

RARE static Entry *learn_entry(Directory *groups, PyObject *group)
{
    PyObject *found = PyObject_CallMethodOneArg((PyObject *)groups, name_find, group ? group : Py_None);
    if (found != NULL && (found == Py_None || !PyObject_TypeCheck(found, &EntryType)))
        Py_CLEAR(found);
    return (Entry *)found;
}

/* A new reference; NULL without an exception where this rank is no member. */
static Entry *find_entry(Core *core, PyObject *group)
{
    Directory *groups = (Directory *)core->groups;
    if (groups == NULL || !PyObject_TypeCheck((PyObject *)groups, &DirectoryType)) {
        PyErr_SetString(PyExc_TypeError, "no Groups");
        return NULL;
    }
    PyObject *found = NULL;
    if (group == NULL) {
        found = groups->standard;
    }
    else if (groups->by_id != NULL && PyDict_CheckExact(groups->by_id)) {
        PyObject *key = PyLong_FromVoidPtr(group);
        if (key == NULL)
            return NULL;
        found = PyDict_GetItemWithError(groups->by_id, key);
        Py_DECREF(key);
    }
    if (found != NULL && found != Py_None && PyObject_TypeCheck(found, &EntryType))
        return (Entry *)Py_NewRef(found);
    return PyErr_Occurred() ? NULL : learn_entry(groups, group);
}

static int peer_of(Call *self, Entry *entry, said_t *said, int32_t *peer)
{
    *peer = self->zero_root ? 0 : -1;
    if (said->group_root == NULL && said->root == NULL)
        return 0;
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

/* The number of a send or receive to this peer, counted in the entry's own dictionary. */
static int64_t next_directed(Entry *entry, int32_t peer, uint32_t direction)
{
    if (peer < 0)
        return 0;
    PyObject *told = PyObject_CallMethod((PyObject *)entry, "next_directed", "iI", (int)peer, direction);
    if (told == NULL)
        return -1;
    int64_t seq = PyLong_AsLongLong(told);
    Py_DECREF(told);
    return seq;
}

/* ------------------------------------------------------------------ the record */

static inline record_t *slot(Core *core)
{
    record_t *ring = (record_t *)((uint64_t *)core->map.buf + core->first);
    record_t *record = NULL;
    for (int i = 0; i < TRIES; i++) {
        record = ring + (++core->serial & core->mask);
        if (!core->careful || record->left || !record->serial)
            break;
    }
    return record;
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

/* Ask for what the record will need: memory answers while the call is understood. */
static inline void fetch_ahead(Core *core, Thread *thread)
{
    uint64_t *words = core->map.buf;
    char *next = (char *)(words + core->first + ((core->serial + 1) & core->mask) * RECORD_WORDS);
    __builtin_prefetch(next, 1);
    __builtin_prefetch(next + 64, 1);
    if (thread->word >= 0 && (thread->word + 4) * 8 <= core->map.len)
        __builtin_prefetch(words + thread->word + 1, 1);
    if (core->groups != NULL)
        __builtin_prefetch(core->groups);
}

/* An exception of the probe switches it off; one of the job's own comes back as -1. */
RARE static int failed(Call *self)
{
    PyObject *type, *error, *trace;
    if (!PyErr_ExceptionMatches(PyExc_Exception)) /* Ctrl-C */
        return -1;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL)
        PyException_SetTraceback(error, trace);
    PyObject *done = PyObject_CallMethodOneArg(self->probe, name_fail, error);
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

/* Enter the operation: 1 entered, 0 not an operation of this rank, -1 an exception (the probe's or the job's). */
static int enter(Call *self, PyObject *args, PyObject *kwargs, entered_t *in)
{
    Core *core = in->core;
    said_t said = {.signature = -1};
    record_t with = {.iteration = 0};
    int done = describe(core, self, args, kwargs, &said);
    if (done <= 0)
        goto out;
    done = 0;
    in->entry = find_entry(core, said.group);
    if (in->entry == NULL) {
        done = PyErr_Occurred() ? -1 : 0;
        goto out;
    }
    if (said.signature < 0) {
        in->slow = 1;
        goto out;
    }
    done = -1;
    if (peer_of(self, in->entry, &said, &with.peer) < 0)
        goto out;
    int64_t site = find_site(core);
    if (site < 0)
        goto out;
    if (in->thread->recorder != (PyObject *)core) {
        PyObject *enlisted = PyObject_CallMethodOneArg((PyObject *)core, name_enlist, (PyObject *)in->thread);
        if (enlisted == NULL)
            goto out;
        Py_DECREF(enlisted);
    }
    if (in->thread->word < 0 || (in->thread->word + 4) * 8 > core->map.len) {
        PyErr_SetString(PyExc_ValueError, "the thread has no slot");
        goto out;
    }
    int64_t seq = self->direction ? next_directed(in->entry, with.peer, self->direction) : (int64_t)++in->entry->seq;
    if (seq < 0)
        goto out;
    /* From here on no Python runs. */
    in->async_ = said.async_;
    in->anybody = self->direction == FLAG_RECV && said.root == NULL && said.group_root == NULL;
    in->record = slot(core);
    with.serial = in->serial = core->serial;
    with.seq = (uint64_t)seq;
    with.entered = wall();
    with.group = in->entry->index;
    with.signature = (uint32_t)said.signature;
    with.site = (uint32_t)site;
    with.thread = (uint32_t)in->thread->index;
    with.iteration = core->iteration;
    with.flags = self->direction | (said.async_ ? FLAG_ASYNC : 0);
    with.uid = in->entry->uid_word;
    with.tag = (uint32_t)with.uid;
    with.check = (uint32_t)with.serial;
    write_record(in->record, &with);
    ((uint64_t *)core->map.buf)[in->thread->word + 1] = with.serial;
    done = 1;
out:
    Py_XDECREF(said.owner);
    return done;
}

RARE static PyObject *token_of(entered_t *in)
{
    Py_ssize_t word = (uint64_t *)in->record - (uint64_t *)in->core->map.buf;
    return Py_BuildValue("(nK)", word, (unsigned long long)in->serial);
}

/* The operation ended in an exception, which stays set. */
RARE static int refuse(Call *self, entered_t *in)
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

/* The operation returned: done, or a handle to follow. -1 with an exception of the job's. */
static int leave(Call *self, entered_t *in, PyObject *result)
{
    int plain = result == Py_None || (self->direction && PyLong_CheckExact(result) && !in->anybody);
    int coalesced = in->thread->coalesced != NULL && in->thread->coalesced != Py_None;
    if (plain && !coalesced && !(self->direction && in->async_)) {
        if (in->record->serial == in->serial)
            __atomic_store_n(&in->record->left, wall(), __ATOMIC_RELEASE);
        return 0;
    }
    PyObject *token = token_of(in), *done = NULL;
    if (token != NULL)
        done = PyObject_CallFunctionObjArgs(self->returned, token, (PyObject *)in->entry, result,
                                            self->direction && in->async_ ? Py_True : Py_False,
                                            in->anybody ? Py_True : Py_False, NULL);
    Py_XDECREF(token);
    if (done == NULL)
        return failed(self);
    Py_DECREF(done);
    return 0;
}

static inline PyObject *through(Call *self, PyObject *args, PyObject *kwargs)
{
    return PyObject_Call(self->function, args, PyDict_GET_SIZE(kwargs) ? kwargs : NULL);
}

/* call(args, kwargs): the wrapped function, recorded. */
static PyObject *call_vectorcall(PyObject *callable, PyObject *const *given_args, size_t flags, PyObject *names)
{
    Call *self = (Call *)callable;
    if (PyVectorcall_NARGS(flags) != 2 || names != NULL || !PyTuple_CheckExact(given_args[0]) || !PyDict_CheckExact(given_args[1])) {
        PyErr_SetString(PyExc_TypeError, "call(args, kwargs)");
        return NULL;
    }
    PyObject *args = given_args[0], *kwargs = given_args[1], *result = NULL;
    entered_t in = {NULL};
    PyObject *recorder = Py_XNewRef(((Holder *)self->probe)->recorder);
    if (recorder == NULL || !PyObject_TypeCheck(recorder, &CoreType) || ((Core *)recorder)->map.obj == NULL)
        goto direct; /* nothing is recorded now */
    in.core = (Core *)recorder;
    in.thread = current_thread(self);
    if (in.thread == NULL) {
        if (failed(self) < 0)
            goto out;
        goto direct;
    }
    if (in.thread->depth)
        goto direct; /* part of the operation that it is called from */
    fetch_ahead(in.core, in.thread);
    int entered = enter(self, args, kwargs, &in);
    if (in.slow) {
        result = PyObject_Call(self->slow, args, PyDict_GET_SIZE(kwargs) ? kwargs : NULL);
        goto out;
    }
    if (entered < 0 && failed(self) < 0)
        goto out;
    if (entered <= 0)
        goto direct;
    unsigned generation = forks;
    in.thread->depth = 1;
    result = through(self, args, kwargs);
    in.thread->depth = 0;
    if (forks != generation)
        goto out; /* a child of the process that entered: the box is its parent's */
    if (result == NULL)
        refuse(self, &in);
    else if (leave(self, &in, result) < 0)
        Py_CLEAR(result);
    goto out;
direct:
    result = through(self, args, kwargs);
out:
    Py_XDECREF(in.entry);
    Py_XDECREF(in.thread);
    Py_XDECREF(recorder);
    return result;
}

static void call_dealloc(Call *self)
{
    Py_XDECREF(self->function);
    Py_XDECREF(self->slow);
    Py_XDECREF(self->probe);
    Py_XDECREF(self->describe);
    Py_XDECREF(self->thread_of);
    Py_XDECREF(self->returned);
    Py_XDECREF(self->refused);
    Py_XDECREF(self->global_rank);
    Py_XDECREF(self->names);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static int place_of(PyObject *form, const char *name, int most)
{
    PyObject *told = PyDict_GetItemString(form, name);
    long place = told == NULL ? -1 : PyLong_AsLong(told);
    return place < most ? (int)place : -1;
}

/* Call(function, slow, probe, describe, helpers, names, form): `hot.py` says what the last three hold. */
static PyObject *call_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    PyObject *function, *slow, *probe, *description, *thread_of, *returned, *refused, *global_rank, *names, *form;
    if (!PyArg_ParseTuple(args, "OOO!O(OOOO)O!O!", &function, &slow, &HolderType, &probe, &description, &thread_of, &returned, &refused,
                          &global_rank, &PyTuple_Type, &names, &PyDict_Type, &form))
        return NULL;
    int known = (int)PyTuple_GET_SIZE(names);
    if (known > PARAMETERS) {
        PyErr_SetString(PyExc_ValueError, "too many parameters");
        return NULL;
    }
    Call *self = (Call *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = call_vectorcall;
    self->function = Py_NewRef(function);
    self->slow = Py_NewRef(slow);
    self->probe = Py_NewRef(probe);
    self->describe = Py_NewRef(description);
    self->thread_of = Py_NewRef(thread_of);
    self->returned = Py_NewRef(returned);
    self->refused = Py_NewRef(refused);
    self->global_rank = Py_NewRef(global_rank);
    self->names = Py_NewRef(names);
    self->tensor = place_of(form, "tensor", known);
    self->reduce = place_of(form, "reduce", known);
    self->group = place_of(form, "group", known);
    self->async_ = place_of(form, "async", known);
    self->root = place_of(form, "root", known);
    self->group_root = place_of(form, "group_root", known);
    self->required = place_of(form, "required", known + 1);
    self->zero_root = place_of(form, "zero_root", 2) > 0;
    self->fast = place_of(form, "fast", 2) > 0 && self->required > self->tensor;
    self->always_async = place_of(form, "always_async", 2) > 0;
    self->absent = (uint32_t)Py_MAX(place_of(form, "absent", 1 << PARAMETERS), 0);
    self->direction = (uint32_t)Py_MAX(place_of(form, "direction", 8), 0);
    self->id = ++last_call;
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
    PyObject *function, *recorded, *probe, *kind;
    PyObject *dict;
} Method;

/* Whether a handle is followed: 1, 0, or -1 with an exception. */
static int is_followed(Core *core, PyObject *handle)
{
    if (core->outstanding == NULL || !PyDict_CheckExact(core->outstanding))
        return 1;
    if (PyDict_GET_SIZE(core->outstanding) == 0)
        return 0;
    PyObject *key = PyLong_FromVoidPtr(handle);
    if (key == NULL)
        return -1;
    int found = PyDict_Contains(core->outstanding, key);
    Py_DECREF(key);
    return found;
}

static PyObject *method_vectorcall(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names)
{
    Method *self = (Method *)callable;
    PyObject *recorder = ((Holder *)self->probe)->recorder, *through = self->recorded;
    if (PyVectorcall_NARGS(flags) > 0 && (PyObject *)Py_TYPE(args[0]) == self->kind) {
        int followed = 0;
        if (recorder != NULL && PyObject_TypeCheck(recorder, &CoreType))
            followed = is_followed((Core *)recorder, args[0]);
        if (followed < 0)
            return NULL;
        if (!followed)
            through = self->function;
    }
    return PyObject_Vectorcall(through, args, flags, names);
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

/* Method(function, recorded, probe, Work): `function` is torch's own, of C++. */
static PyObject *method_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    PyObject *function, *recorded, *probe, *kind;
    if (!PyArg_ParseTuple(args, "OOO!O!", &function, &recorded, &HolderType, &probe, &PyType_Type, &kind))
        return NULL;
    Method *self = (Method *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = method_vectorcall;
    self->function = Py_NewRef(function);
    self->recorded = Py_NewRef(recorded);
    self->probe = Py_NewRef(probe);
    self->kind = Py_NewRef(kind);
    return (PyObject *)self;
}

/* ------------------------------------------------------------------ the module */

#define TYPE(c_name, python_name, what, doc)                                                                                   \
    static PyTypeObject c_name = {                                                                                             \
        PyVarObject_HEAD_INIT(NULL, 0).tp_name = "hangdoctor.probe.record._record." python_name,                               \
        .tp_basicsize = sizeof(what), .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, .tp_new = PyType_GenericNew, .tp_doc = doc,

TYPE(HolderType, "Holder", Holder, "Whether anything is recorded: its `recorder`, or None.")
    .tp_members = holder_members, .tp_methods = holder_methods, .tp_dealloc = (destructor)holder_dealloc};
TYPE(EntryType, "Entry", Entry, "One process group: its numbers.") .tp_members = entry_members};
TYPE(DirectoryType, "Directory", Directory, "The process groups of a rank.")
    .tp_members = directory_members, .tp_dealloc = (destructor)directory_dealloc};
TYPE(ThreadType, "Thread", Thread, "What is kept for each thread.")
    .tp_members = thread_members, .tp_dealloc = (destructor)thread_dealloc};
TYPE(CoreType, "Core", Core, "The ring of one box.")
    .tp_members = core_members, .tp_methods = core_methods, .tp_dealloc = (destructor)core_dealloc};
static PyTypeObject CallType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "hangdoctor.probe.record._record.Call",
    .tp_basicsize = sizeof(Call),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Call, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = call_new,
    .tp_dealloc = (destructor)call_dealloc,
    .tp_doc = "One function of torch.distributed, recorded.",
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
    if (T.mode != NULL)
        Py_RETURN_NONE;
    PyTypeObject *owner = PyDescr_TYPE(shape);
    if (!PyType_IsSubtype((PyTypeObject *)tensor, owner) || !PyType_IsSubtype((PyTypeObject *)parameter, owner) ||
        PyDescr_TYPE(dtype) != owner || PyDescr_TYPE(address) != owner) {
        PyErr_SetString(PyExc_TypeError, "getters of another type");
        return NULL;
    }
    /* Kept for good: they are torch's. */
    T.tensor = (PyTypeObject *)Py_NewRef(tensor);
    T.parameter = (PyTypeObject *)Py_NewRef(parameter);
    T.shape = (PyGetSetDescrObject *)Py_NewRef(shape);
    T.dtype = (PyGetSetDescrObject *)Py_NewRef(dtype);
    T.address = (PyGetSetDescrObject *)Py_NewRef(address);
    T.mode = Py_NewRef(mode);
    void *library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    T.get_dim = (int32_t(*)(void *, int64_t *))symbol(library, "aoti_torch_get_dim");
    T.get_sizes = (int32_t(*)(void *, int64_t **))symbol(library, "aoti_torch_get_sizes");
    T.get_dtype = (int32_t(*)(void *, int32_t *))symbol(library, "aoti_torch_get_dtype");
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"set_tensor", set_tensor, METH_VARARGS, "How a plain tensor shows its shape and dtype."},
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
    PyTypeObject *types[] = {&HolderType, &EntryType, &DirectoryType, &ThreadType, &CoreType, &CallType, &MethodType};
    const char *names[] = {"Holder", "Entry", "Directory", "Thread", "Core", "Call", "Method"};
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    for (int i = 0; i < 7; i++)
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
    one = PyLong_FromLong(1);
    getframe = Py_XNewRef(PySys_GetObject("_getframe"));
    if (one == NULL || getframe == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ImportError, "no sys._getframe");
        goto bad;
    }
    pthread_atfork(NULL, NULL, in_child);
    return module;
bad:
    Py_DECREF(module);
    return NULL;
}

/* Calls a profiler plugin in the order and with the structures of NCCL's versions, without NCCL or a GPU.
 *
 *   driver PLUGIN VERSION walk          two communicators, every kind of event; waits for a line on stdin, then ends
 *   driver PLUGIN VERSION end           the same, and the communicators are destroyed
 *   driver PLUGIN VERSION many N T      N operations with all their events in each of T threads
 *   driver PLUGIN VERSION cost N        nanoseconds of a start and a stop
 *   driver PLUGIN VERSION again N       N times: loaded, a communicator made and destroyed, unloaded
 *   driver PLUGIN VERSION fork          a child uses its parent's handles, then makes a communicator of its own
 *   driver PLUGIN VERSION stuck RANK RANKS STATE  operations that ended, and a last one that is enqueued, started or missing
 *
 * The structures are written down here a second time, so that a mistake in the plugin's own shows.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { Group = 1, Coll = 2, P2p = 4, ProxyOp = 8, ProxyStep = 16, ProxyCtrl = 32, KernelCh = 64, NetPlugin = 128,
       GroupApi = 256, CollApi = 512, P2pApi = 1024, KernelLaunch = 2048, CeColl = 4096 };

struct proxy_op { pid_t pid; uint8_t channel; int peer, n_steps, chunk, is_send; };
struct group_api { bool captured; int depth; };
struct coll_api { const char *func; size_t n; const char *type; int root; void *stream; bool captured; };
struct p2p_api { const char *func; size_t n; const char *type; void *stream; bool captured; };
struct net { int64_t id; void *data; };

#define HEAD(type_t) type_t type; void *parent; int rank
struct d1 { HEAD(uint8_t); union {
  struct { const char *name; uint64_t hash, seq; uint8_t func; void const *in; void *out; size_t n; int root; uint8_t type;
           uint32_t op; size_t traffic; uint8_t max_channels, warps, algo, proto; int collnet, nvls; } coll;
  struct { const char *name; uint64_t hash; uint8_t func; void *buff; uint8_t type; size_t n; int peer; } p2p;
  struct proxy_op proxy; struct { int step; } step; }; };
struct d2 { HEAD(uint8_t); union {
  struct { const char *name; uint64_t hash, seq; const char *func; void const *in; void *out; size_t n; int root; const char *type;
           size_t traffic; uint8_t max_channels, warps; const char *algo, *proto; } coll;
  struct { const char *name; uint64_t hash; const char *func; void *buff; const char *type; size_t n; int peer; } p2p;
  struct proxy_op proxy; struct { int step; } step; }; };
struct d3 { HEAD(uint8_t); union {
  struct { const char *name; uint64_t hash, seq; const char *func; void const *in; void *out; size_t n; int root; const char *type;
           uint8_t max_channels, warps; const char *algo, *proto; } coll;
  struct { const char *name; uint64_t hash; const char *func; void *buff; const char *type; size_t n; int peer; } p2p;
  struct proxy_op proxy; struct { int step; } step; struct { uint8_t channel; } kernel; struct net net; }; };
#define FROM_V4 \
  struct { uint64_t seq; const char *func; void const *in; void *out; size_t n; int root; const char *type; uint8_t channels, warps; \
           const char *algo, *proto; void *group; } coll; \
  struct { const char *func; void *buff; const char *type; size_t n; int peer; uint8_t channels; void *group; } p2p; \
  struct proxy_op proxy; struct { int step; } step; struct { uint8_t channel; uint64_t timer; } kernel; struct net net
struct d4 { HEAD(uint8_t); union { FROM_V4; }; };
struct d5 { HEAD(uint64_t); union { struct group_api group_api; struct coll_api coll_api; struct p2p_api p2p_api; FROM_V4; }; };
struct d6 { HEAD(uint64_t); union { struct group_api group_api; struct coll_api coll_api; struct p2p_api p2p_api; FROM_V4;
  struct { uint64_t seq; const char *func; void const *in; void *out; size_t n; int root; const char *type, *strategy; bool intra;
           uint32_t size, batches, number; void *stream; } ce; }; };
union descr { struct d1 v1; struct d2 v2; struct d3 v3; struct d4 v4; struct d5 v5; struct d6 v6; };

typedef int result;
struct plugin {
  const char *name;
  void *init;
  result (*start)(void *, void **, void *);
  result (*stop)(void *);
  result (*record)(void *, int, void *);
  result (*finalize)(void *);
};

static struct plugin *plugin;
static void *library;
static int version;
static const char *const FUNCS[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "Send", "Recv"};
static const char *const TYPES[] = {"ncclInt8", "ncclUint8", "ncclInt32", "ncclUint32", "ncclInt64", "ncclUint64", "ncclFloat16", "ncclFloat32"};
enum { Broadcast = 0, AllReduce = 4, Send = 6, Recv = 7, Float32 = 7 };

static void must(int ok, const char *what) {
  if (!ok) {
    fprintf(stderr, "driver: %s\n", what);
    exit(3);
  }
}

static void load(const char *path) {
  char symbol[32];
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  must(library != NULL, "the plugin cannot be loaded");
  snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", version);
  plugin = dlsym(library, symbol);
  must(plugin != NULL, "the plugin has no such version");
}

struct comm { void *context; uint64_t hash; int rank, ranks, mask; uint64_t seq[8]; };

static void logger(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
  (void)level, (void)flags, (void)file, (void)line, (void)format;
  must(0, "the plugin logs");
}

static void make(struct comm *c, uint64_t hash, int rank, int ranks, const char *name) {
  memset(c, 0, sizeof *c);
  c->hash = hash, c->rank = rank, c->ranks = ranks, c->mask = -1, c->context = (void *)1;
  int error;
  if (version < 4) error = ((result(*)(void **, int *))plugin->init)(&c->context, &c->mask);
  else if (version == 4)
    error = ((result(*)(void **, int *, const char *, uint64_t, int, int, int, void *))plugin->init)(
        &c->context, &c->mask, name, hash, 1, ranks, rank, (void *)logger);
  else
    error = ((result(*)(void **, uint64_t, int *, const char *, int, int, int, void *))plugin->init)(
        &c->context, hash, &c->mask, name, 1, ranks, rank, (void *)logger);
  must(!error, "init");
}

static void *start(struct comm *c, union descr *d) {
  void *h = (void *)0xdead;
  must(!plugin->start(c->context, &h, d), "startEvent");
  must(h != (void *)0xdead, "startEvent left the handle alone");
  return h;
}

/* What NCCL does not set is whatever lay there. */
static union descr fresh(int type, void *parent, int rank) {
  union descr d;
  memset(&d, version == 4 || version == 5 ? 0xA5 : 0, sizeof d);
  if (version < 5) d.v1.type = (uint8_t)type;
  else d.v5.type = (uint64_t)type;
  d.v1.parent = parent, d.v1.rank = rank;
  return d;
}

static void *simple(struct comm *c, int type, void *parent) {
  union descr d = fresh(type, parent, c->rank);
  return start(c, &d);
}

static void *coll(struct comm *c, void *group, void *api, int func, size_t n, int root) {
  union descr d = fresh(Coll, version < 5 ? group : api, c->rank);
  uint64_t seq = c->seq[func]++;
#define FILL(v) d.v.coll.seq = seq, d.v.coll.n = n, d.v.coll.root = root, d.v.coll.in = &d, d.v.coll.out = &d
#define NAMES(v) d.v.coll.func = FUNCS[func], d.v.coll.type = TYPES[Float32], d.v.coll.algo = "RING", d.v.coll.proto = "LL"
#define OLD(v) d.v.coll.name = "old", d.v.coll.hash = c->hash, d.v.coll.max_channels = 2
  switch (version) {
  case 1: FILL(v1), OLD(v1), d.v1.coll.func = (uint8_t)func, d.v1.coll.type = Float32; break;
  case 2: FILL(v2), NAMES(v2), OLD(v2); break;
  case 3: FILL(v3), NAMES(v3), OLD(v3); break;
  case 4: FILL(v4), NAMES(v4), d.v4.coll.channels = 2; break;
  default: FILL(v5), NAMES(v5), d.v5.coll.channels = 2, d.v5.coll.group = group;
  }
  return start(c, &d);
}

static void *p2p(struct comm *c, void *group, void *api, int func, size_t n, int peer) {
  union descr d = fresh(P2p, version < 5 ? group : api, c->rank);
#define TO(v) d.v.p2p.n = n, d.v.p2p.peer = peer, d.v.p2p.buff = &d
#define WORDS(v) d.v.p2p.func = FUNCS[func], d.v.p2p.type = TYPES[Float32]
  switch (version) {
  case 1: TO(v1), d.v1.p2p.func = (uint8_t)func, d.v1.p2p.type = Float32, d.v1.p2p.hash = c->hash; break;
  case 2: TO(v2), WORDS(v2), d.v2.p2p.hash = c->hash; break;
  case 3: TO(v3), WORDS(v3), d.v3.p2p.hash = c->hash; break;
  case 4: TO(v4), WORDS(v4), d.v4.p2p.channels = 1; break;
  default: TO(v5), WORDS(v5), d.v5.p2p.channels = 1, d.v5.p2p.group = group;
  }
  return start(c, &d);
}

static void *proxy(struct comm *c, void *task, pid_t pid, int is_send) {
  union descr d = fresh(ProxyOp, task, c->rank);
  struct proxy_op op = {pid, 1, 1, 2, 4096, is_send};
  if (version < 5) d.v4.proxy = op;
  else d.v5.proxy = op;
  return start(c, &d);
}

static void *kernel(struct comm *c, void *task, int channel) {
  union descr d = fresh(KernelCh, task, 0);
  if (version == 3) d.v3.kernel.channel = (uint8_t)channel;
  else if (version == 4) d.v4.kernel.channel = (uint8_t)channel, d.v4.kernel.timer = 123;
  else d.v5.kernel.channel = (uint8_t)channel, d.v5.kernel.timer = 123;
  return start(c, &d);
}

static void *api(struct comm *c, int type, void *group, bool captured) {
  if (version < 5) return NULL;
  union descr d = fresh(type, group, 0);
  if (type == GroupApi) d.v5.group_api.captured = captured;
  if (type == CollApi) d.v5.coll_api.captured = captured, d.v5.coll_api.func = "AllReduce";
  if (type == P2pApi) d.v5.p2p_api.captured = captured, d.v5.p2p_api.func = "Send";
  return start(c, &d);
}

static void stop(void *h) { must(!plugin->stop(h), "stopEvent"); }
static void state(void *h, int which) {
  uint64_t args[2] = {4096, 0};
  must(!plugin->record(h, which, args), "recordEventState");
}

/* The network transfers of an operation: a send and a receive of two steps. */
static void transfers(struct comm *c, void *task, bool finish) {
  for (int is_send = 0; is_send < 2; is_send++) {
    void *op = proxy(c, task, getpid(), is_send);
    state(op, 19);
    for (int i = 0; i < 2; i++) {
      void *step = simple(c, ProxyStep, op);
      state(step, is_send ? 8 : 10);
      if (!finish) return;
      state(step, is_send ? 9 : 12);
      stop(step);
    }
    stop(op);
  }
}

enum { ENQUEUED, STARTED, DONE };
static void kernels(struct comm *c, void *task, int upto) {
  if (version < 3 || !(c->mask & KernelCh)) return;
  void *one = upto >= STARTED ? kernel(c, task, 0) : NULL, *two = upto >= STARTED ? kernel(c, task, 1) : NULL;
  if (upto < DONE) return;
  state(one, 22), stop(one);
  state(two, 22), stop(two);
}

/* One operation from its call to its end. */
static void whole(struct comm *c, int func, size_t n, int peer, int upto) {
  void *outer = api(c, GroupApi, NULL, false);
  void *call = api(c, func < Send ? CollApi : P2pApi, outer, false);
  if (version >= 5) stop(call);
  void *group = simple(c, Group, NULL);
  must(group != NULL || !c->mask, "no handle for a group: NCCL before 2.28 reports nothing below it");
  void *task = func < Send ? coll(c, group, call, func, n, peer) : p2p(c, group, call, func, n, peer);
  stop(group);
  stop(task);
  if (version >= 5) state(outer, 23), state(outer, 24), stop(outer);
  kernels(c, task, upto);
  transfers(c, task, upto == DONE);
}

static int files_open(void) {
  int n = 0;
  DIR *dir = opendir("/proc/self/fd");
  while (readdir(dir)) n++;
  closedir(dir);
  return n;
}

static long from_status(const char *name) {
  char line[256];
  long value = -1;
  FILE *f = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, f))
    if (!strncmp(line, name, strlen(name))) value = atol(line + strlen(name) + 1);
  fclose(f);
  return value;
}

static void odd(struct comm *c) {
  must(simple(c, ProxyCtrl, NULL) == NULL, "an event that was not asked for has a handle");
  must(simple(c, version < 5 ? 128 : 1 << 20, NULL) == NULL, "an unknown event has a handle");
  must(proxy(c, NULL, getpid(), 1) == NULL, "a transfer without an operation has a handle");
  must(simple(c, ProxyStep, NULL) == NULL, "a step without a transfer has a handle");
  stop(NULL), state(NULL, 9);
  stop((void *)0x7f1234567890), state((void *)0x7f1234567895, 9); /* another process's address */
  void *task = coll(c, NULL, NULL, Broadcast, 3, 1);
  must(proxy(c, task, getpid() + 1, 1) == NULL, "a transfer of another process has a handle");
  must(proxy(c, (void *)0x7f1234567892, getpid(), 1) == NULL, "a transfer of no operation has a handle");
  stop(task);
  kernels(c, task, DONE);
  struct comm nothing = {.context = (void *)0x7f0000001231};
  must(coll(&nothing, NULL, NULL, AllReduce, 1, 0) == NULL, "an operation of no communicator has a handle");
  nothing.context = NULL;
  must(coll(&nothing, NULL, NULL, AllReduce, 1, 0) == NULL, "an operation without a context has a handle");
}

static void walk(bool end) {
  struct comm a, b;
  make(&a, 0xA1, 0, 2, "world"), make(&b, 0xB2, 1, 4, NULL);
  whole(&a, AllReduce, 1000, 0, DONE);
  odd(&a);
  whole(&b, Send, 8, 3, DONE), whole(&b, Send, 8, 3, DONE), whole(&b, Recv, 8, 2, DONE), whole(&b, Send, 8, 0, DONE);
  whole(&b, Send, 8, 1, ENQUEUED); /* to itself: a copy, of which NCCL reports no kernel */
  if (version >= 5) {
    void *call = api(&a, CollApi, NULL, true);
    void *task = coll(&a, NULL, call, AllReduce, 77, 0);
    stop(task), kernels(&a, task, DONE);
  }
  if (version >= 6) {
    union descr d = fresh(CeColl, NULL, 0);
    d.v6.ce.seq = 5, d.v6.ce.func = "AllGather", d.v6.ce.n = 64, d.v6.ce.type = "ncclInt8", d.v6.ce.strategy = "UC";
    stop(start(&a, &d));
  }
  whole(&a, AllReduce, 1000, 0, STARTED);
  whole(&a, AllReduce, 1000, 0, ENQUEUED);
  if (end) must(!plugin->finalize(a.context) && !plugin->finalize(b.context), "finalize");
}

static long operations;
static void *many(void *unused) {
  (void)unused;
  static uint64_t next = 0x1000;
  struct comm c;
  make(&c, __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED), 0, 2, "many");
  for (long i = 0; i < operations; i++) whole(&c, i % 3 ? AllReduce : Send, 100, 1, DONE);
  must(!plugin->finalize(c.context), "finalize");
  return NULL;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void cost(long n) {
  struct comm c;
  make(&c, 1, 0, 2, "cost");
  double best[4] = {1e9, 1e9, 1e9, 1e9};
  for (int round = 0; round < 5; round++) {
    void *task = coll(&c, NULL, NULL, AllReduce, 100, 0), *transfer = proxy(&c, task, getpid(), 1);
    double at = now();
    for (long i = 0; i < n; i++) {
      void *step = simple(&c, ProxyStep, transfer);
      state(step, 8), state(step, 20), state(step, 9);
      stop(step);
    }
    double step = (now() - at) / (double)n;
    at = now();
    for (long i = 0; i < n; i++) {
      void *k = version >= 3 ? kernel(&c, task, 0) : NULL;
      state(k, 22), stop(k);
    }
    double kernel_ns = (now() - at) / (double)n;
    at = now();
    for (long i = 0; i < n; i++) {
      void *each = coll(&c, NULL, NULL, AllReduce, 100, 0), *k = version >= 3 ? kernel(&c, each, 0) : NULL;
      stop(each), state(k, 22), stop(k);
    }
    double operation = (now() - at) / (double)n - kernel_ns;
    at = now();
    for (long i = 0; i < n; i++) stop(coll(&c, NULL, NULL, AllReduce, 100, 0));
    double pending = (now() - at) / (double)n; /* more of them than the ring has room for */
    double found[4] = {operation, step, kernel_ns, pending};
    for (int i = 0; i < 4; i++)
      if (found[i] < best[i]) best[i] = found[i];
  }
  printf("operation %.0f ns, step %.0f ns, kernel channel %.0f ns, operation in a ring of pending ones %.0f ns\n", best[0],
         best[1], best[2], best[3]);
}

static void forks(void) {
  struct comm c, own;
  make(&c, 0xF0, 0, 2, "parent");
  whole(&c, AllReduce, 10, 0, DONE);
  void *task = coll(&c, NULL, NULL, AllReduce, 10, 0);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    stop(task);
    must(coll(&c, NULL, NULL, AllReduce, 10, 0) == NULL, "a child records into its parent's file");
    make(&own, 0xF1, 0, 2, "child");
    must(own.mask != 0, "a child has no file of its own");
    whole(&own, AllReduce, 11, 0, DONE);
    printf("child %d\n", getpid());
    fflush(stdout);
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  must(status == 0, "the child failed");
  whole(&c, AllReduce, 12, 0, DONE);
}

static void stuck(int rank, int ranks, const char *how) {
  struct comm c;
  make(&c, 0x57, rank, ranks, "world");
  for (int i = 0; i < 3; i++) whole(&c, AllReduce, 1000, 0, DONE);
  if (!strcmp(how, "enqueued")) whole(&c, AllReduce, 1000, 0, ENQUEUED);
  if (!strcmp(how, "started")) whole(&c, AllReduce, 1000, 0, STARTED);
}

static void wait_for_line(void) {
  char line[16];
  printf("ready %d\n", getpid());
  fflush(stdout);
  if (!fgets(line, sizeof line, stdin)) return;
}

#ifdef AS_LIBRARY
/* For a rank in Python: the same as `stuck`. */
void be_stuck(const char *path, int interface, int rank, int ranks, const char *how) {
  version = interface;
  load(path);
  stuck(rank, ranks, how);
}

/* The host's wait for its GPU: until the test ends the process. */
void synchronize(void) {
  printf("ready %d\n", getpid());
  fflush(stdout);
  for (;;) pause();
}
#else
int main(int argc, char **argv) {
  must(argc >= 4, "PLUGIN VERSION SCENARIO");
  version = atoi(argv[2]);
  const char *what = argv[3];
  int fds = files_open();
  load(argv[1]);
  if (!strcmp(what, "walk")) walk(false), wait_for_line();
  if (!strcmp(what, "end")) walk(true);
  if (!strcmp(what, "fork")) forks(), wait_for_line();
  if (!strcmp(what, "stuck")) stuck(atoi(argv[4]), atoi(argv[5]), argv[6]), wait_for_line();
  if (!strcmp(what, "cost")) cost(atol(argv[4]));
  if (!strcmp(what, "again"))
    for (int i = 0; i < atoi(argv[4]); i++) {
      struct comm c;
      make(&c, (uint64_t)i + 1, 0, 2, "again");
      whole(&c, AllReduce, 10, 0, DONE);
      must(!plugin->finalize(c.context), "finalize");
      dlclose(library);
      load(argv[1]);
    }
  if (!strcmp(what, "many")) {
    int threads = atoi(argv[5]);
    pthread_t ids[16];
    operations = 1000;
    many(NULL);
    long before = from_status("VmRSS:");
    operations = atol(argv[4]);
    for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, many, NULL);
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    printf("grew %ld kB\n", from_status("VmRSS:") - before);
    wait_for_line();
  }
  printf("files %d\n", files_open() - fds);
  fflush(stdout);
  return 0;
}
#endif

/* The profiler plugin that NCCL loads (NCCL_PROFILER_PLUGIN): what each collective, send and receive came to, written
 * into a file beside the rank's black box. docs/blackbox.md, "NCCL's own events", has the file byte by byte.
 *
 * NCCL calls from the job's threads and from its proxy threads, in the middle of communication. So an event takes no
 * lock, allocates nothing, prints nothing and makes no system call but the clock's (vdso); whatever goes wrong, NCCL
 * hears success and nothing is recorded. A handle is a number and never an address: NCCL hands out handles of other
 * processes (PXN), and uses some again after their end.
 *
 * NCCL's structures are described here as far as they are read; they are those of NCCL 2.23 (v1) to 2.30 (v6).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define RELAXED __ATOMIC_RELAXED
#define get(place) __atomic_load_n(&(place), RELAXED)
#define put(place, value) __atomic_store_n(&(place), (value), RELAXED)
#define count(place) __atomic_fetch_add(&(place), 1, RELAXED)

/* ------------------------------------------------------------------ the file */

enum { VERSION = 1, HEADER_BYTES = 4096, COMMS = 256, PAIRS = 4096, SLOTS = 8192 };
enum { STEP_OVER = 64, PROBES = 16 };
static const char MAGIC[8] = {'H', 'D', 'N', 'C', 'C', 'L', 'P', 'R'};

enum { UNUSED = 0, LIVE = 1, ENDED = 2 };
enum { COLLECTIVE = 1, SEND = 2, RECEIVE = 3, COPY_ENGINE = 4 };
enum { CAPTURED = 1, CAPTURE_UNKNOWN = 2, SEES_KERNELS = 4, SEEN_BY_NETWORK = 8 };

struct comm { /* 64 bytes */
  uint64_t hash;
  uint32_t ranks, nodes;
  int32_t rank;
  uint32_t state, generation, collectives;
  uint64_t made_ns;
  char name[24];
};

struct pair { /* 16 bytes: how many sends to a peer, or receives from it */
  uint64_t key, count;
};

struct record { /* 128 bytes */
  uint64_t serial, number, nccl_number;
  uint64_t begun_ns, launched_ns, started_ns, ended_ns, moved_ns;
  uint64_t elements, bytes;
  uint16_t comm, generation;
  int32_t peer; /* of a collective: the root */
  uint8_t kind, op, datatype, channels;
  uint32_t flags;
  uint32_t kernels_started, kernels_ended;
  uint32_t transfers_started, transfers_ended;
  uint32_t steps_wanted, steps_started, steps_ended;
  uint32_t check;
};

struct file {
  char magic[8];
  uint32_t version, header_bytes;
  uint64_t file_bytes;
  uint32_t pid, interface;
  uint64_t started_ticks;
  uint8_t boot_id[16];
  uint64_t made_ns;
  uint32_t comms_at, comms, pairs_at, pairs, ring_at, slots;
  uint64_t next; /* serial numbers given so far */
  uint64_t unknown, stale, no_room;
  char rest[HEADER_BYTES - 120];
  struct comm comm[COMMS];
  struct pair pair[PAIRS];
  struct record ring[SLOTS];
};

_Static_assert(sizeof(struct comm) == 64, "comm");
_Static_assert(sizeof(struct record) == 128, "record");
_Static_assert(offsetof(struct file, comm) == HEADER_BYTES, "header");

static struct file *mapped; /* NULL: nothing is recorded */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER; /* of communicators: never in an event */
static char own_path[PATH_MAX];
static bool failed, beside_a_box;
static int kernels_wanted;

static uint64_t now_ns(clockid_t clock) {
  struct timespec t;
  return clock_gettime(clock, &t) ? 0 : (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ------------------------------------------------------------------ who this process is */

static size_t read_text(const char *path, char *text, size_t room) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t got = read(fd, text, room - 1);
  close(fd);
  text[got > 0 ? got : 0] = 0;
  return got > 0 ? (size_t)got : 0;
}

static uint64_t boot_offset_ticks(void) { /* of this time namespace, which the kernel has added */
  char text[256];
  long long seconds = 0;
  if (!read_text("/proc/self/timens_offsets", text, sizeof text)) return 0;
  const char *line = strstr(text, "boottime");
  if (line == NULL || sscanf(line, "boottime %lld", &seconds) != 1) return 0;
  return (uint64_t)(seconds * sysconf(_SC_CLK_TCK));
}

static uint64_t start_ticks(void) {
  char text[1024];
  if (!read_text("/proc/self/stat", text, sizeof text)) return 0;
  const char *at = strrchr(text, ')');
  for (int field = 2; at != NULL && field < 22; field++) at = strchr(at + 1, ' ');
  return at == NULL ? 0 : strtoull(at + 1, NULL, 10) - boot_offset_ticks();
}

static void read_boot_id(uint8_t *id) {
  char text[64];
  if (!read_text("/proc/sys/kernel/random/boot_id", text, sizeof text)) return;
  int digits = 0;
  for (const char *c = text; *c && digits < 32; c++) {
    const char *digit = strchr("0123456789abcdef", *c);
    if (digit == NULL) continue;
    uint8_t value = (uint8_t)(digit - "0123456789abcdef");
    id[digits / 2] = (uint8_t)(id[digits / 2] << 4 | value);
    digits++;
  }
}

/* ------------------------------------------------------------------ where the file lies */

static bool is_own_box(const char *path) {
  uint32_t pid = 0;
  char head[28];
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  bool whole = pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head;
  close(fd);
  memcpy(&pid, head + 24, sizeof pid);
  return whole && !memcmp(head, "HDBLKBOX", 8) && pid == (uint32_t)getpid();
}

/* Beside the black box that this process has mapped. */
static bool beside_box(char *path) {
  char *line = NULL;
  size_t room = 0;
  bool found = false;
  FILE *maps = fopen("/proc/self/maps", "re");
  if (maps == NULL) return false;
  while (!found && getline(&line, &room, maps) > 0) {
    char *name = strchr(line, '/');
    if (name == NULL) continue;
    name[strcspn(name, "\n")] = 0;
    char *suffix = strrchr(name, '.');
    if (suffix == NULL || strcmp(suffix, ".blackbox") || !is_own_box(name)) continue;
    *suffix = 0;
    found = snprintf(path, PATH_MAX, "%s.nccl", name) < PATH_MAX;
  }
  free(line);
  fclose(maps);
  return found;
}

static bool is_private(const char *folder) {
  struct stat found;
  mkdir(folder, 0700);
  return !lstat(folder, &found) && S_ISDIR(found.st_mode) && found.st_uid == geteuid() && !(found.st_mode & 022);
}

/* Whether a folder of ours in it is safe, though others may write there as well: in /tmp, or in one of a group's. */
static bool is_shared(const char *folder) {
  struct stat found;
  if (lstat(folder, &found) || !S_ISDIR(found.st_mode)) return false;
  return found.st_uid == geteuid() || found.st_uid == 0 || found.st_mode & S_ISVTX;
}

/* In HANGDOCTOR_DIR, by the rules of hangdoctor/probe/folder.py: only in a folder that no one else can write to. */
static bool in_folder(char *path) {
  char folder[PATH_MAX], host[256] = "", space[64] = "";
  struct stat names;
  const char *told = getenv("HANGDOCTOR_DIR");
  if (told == NULL || told[0] != '/' || gethostname(host, sizeof host - 1)) return false;
  if (snprintf(folder, sizeof folder, "%s", told) >= (int)sizeof folder) return false;
  if (!is_private(folder)) {
    if (!is_shared(told)) return false;
    if (snprintf(folder, sizeof folder, "%s/hangdoctor-%u", told, geteuid()) >= (int)sizeof folder) return false;
    if (!is_private(folder)) return false;
  }
  if (!stat("/proc/self/ns/pid", &names) && names.st_ino != 0xEFFFFFFCu) /* a container that counts by itself */
    snprintf(space, sizeof space, "-%llu", (unsigned long long)names.st_ino);
  return snprintf(path, PATH_MAX, "%s/%s-%d%s.nccl", folder, host, (int)getpid(), space) < PATH_MAX;
}

/* Takes away what a dead process of the same number left; false where the file is anything else. */
static bool is_left_over(const char *path, uint64_t ticks) {
  char head[48];
  uint64_t began = 0;
  struct stat found;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  bool regular = !fstat(fd, &found) && S_ISREG(found.st_mode) && found.st_uid == geteuid();
  bool whole = regular && pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head;
  close(fd);
  if (!whole || memcmp(head, MAGIC, sizeof MAGIC)) return false;
  memcpy(&began, head + offsetof(struct file, started_ticks), sizeof began);
  return began != ticks && !unlink(path);
}

static struct file *make_file(const char *path, uint64_t ticks) {
  int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  struct rlimit most;
  if (getrlimit(RLIMIT_FSIZE, &most) || most.rlim_cur < sizeof(struct file)) return NULL; /* else a signal */
  int fd = open(path, flags, 0600);
  if (fd < 0 && errno == EEXIST && is_left_over(path, ticks)) fd = open(path, flags, 0600);
  if (fd < 0) return NULL;
  /* Reserved, so that a full file system means no file and not a SIGBUS later. */
  int error = posix_fallocate(fd, 0, sizeof(struct file));
  void *at = error ? MAP_FAILED : mmap(NULL, sizeof(struct file), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  close(fd);
  if (at == MAP_FAILED) {
    unlink(path);
    return NULL;
  }
  return at;
}

static void in_child(void) { /* after a fork: the file is the parent's */
  if (mapped != NULL) munmap(mapped, sizeof(struct file));
  mapped = NULL;
  failed = beside_a_box = false;
  own_path[0] = 0;
  pthread_mutex_init(&making, NULL);
}

/* The file of this process, made at its first communicator; NULL where it cannot be. Under `making`. */
static struct file *open_file(void) {
  static bool watched;
  const char *off = getenv("HANGDOCTOR_DISABLE"), *events = getenv("HANGDOCTOR_NCCL_EVENTS");
  if (mapped != NULL || failed) return mapped;
  failed = true;
  if ((off != NULL && off[0] && strcmp(off, "0")) || (events != NULL && !strcmp(events, "off"))) return NULL;
  kernels_wanted = events != NULL && !strcmp(events, "device");
  if (!watched && pthread_atfork(NULL, NULL, in_child)) return NULL;
  watched = true;
  beside_a_box = beside_box(own_path);
  if (!beside_a_box && !in_folder(own_path)) return NULL;
  uint64_t ticks = start_ticks();
  struct file *file = make_file(own_path, ticks);
  if (file == NULL) return NULL;
  file->version = VERSION;
  file->header_bytes = HEADER_BYTES;
  file->file_bytes = sizeof *file;
  file->pid = (uint32_t)getpid();
  file->started_ticks = ticks;
  read_boot_id(file->boot_id);
  file->made_ns = now_ns(CLOCK_REALTIME);
  file->comms_at = offsetof(struct file, comm);
  file->comms = COMMS;
  file->pairs_at = offsetof(struct file, pair);
  file->pairs = PAIRS;
  file->ring_at = offsetof(struct file, ring);
  file->slots = SLOTS;
  __atomic_thread_fence(__ATOMIC_RELEASE);
  memcpy(file->magic, MAGIC, sizeof MAGIC); /* last: no reader takes half a header for a whole one */
  failed = false;
  __atomic_store_n(&mapped, file, __ATOMIC_RELEASE);
  return file;
}

/* Without a black box no one takes the file away: a process that has destroyed its communicators does it itself. */
__attribute__((destructor)) static void at_exit(void) {
  struct file *file = mapped;
  if (file == NULL || beside_a_box || file->pid != (uint32_t)getpid()) return;
  for (int i = 0; i < COMMS; i++)
    if (get(file->comm[i].state) == LIVE) return;
  unlink(own_path);
}

/* ------------------------------------------------------------------ handles: a number and what it is of, never an address */

enum { OF_COMM = 1, OF_OPERATION, OF_SENT, OF_RECEIVED, OF_SENT_STEP, OF_RECEIVED_STEP, OF_KERNEL, OF_ELSE, OF_CAPTURE };

static void *handle(uint64_t number, unsigned of) { return (void *)(uintptr_t)(number << 4 | of); }
static unsigned is_of(const void *h) { return (unsigned)((uintptr_t)h & 15); }
static uint64_t number_of(const void *h) { return (uint64_t)(uintptr_t)h >> 4; }

/* The communicator of a context; NULL for one that has ended, or that is another process's. */
static struct comm *comm_of(struct file *file, const void *context) {
  uint64_t number = number_of(context);
  uint64_t index = (number & 0xFFFF) - 1;
  if (is_of(context) != OF_COMM || index >= COMMS) return NULL;
  struct comm *comm = &file->comm[index];
  return get(comm->state) == LIVE && get(comm->generation) == number >> 16 ? comm : NULL;
}

/* The record of a handle's operation; NULL where it has been overwritten. */
static struct record *record_of(struct file *file, const void *h) {
  uint64_t serial = number_of(h);
  struct record *record = &file->ring[serial % SLOTS];
  if (serial && __atomic_load_n(&record->serial, __ATOMIC_ACQUIRE) == serial) return record;
  count(file->stale);
  return NULL;
}

/* ------------------------------------------------------------------ operations */

struct operation { /* what the descriptors of all versions come to */
  uint64_t hash, nccl_number, elements;
  int32_t peer, rank;
  uint8_t kind, op, datatype, channels;
  uint32_t flags;
};

/* The numbers are those that v1 uses; what came later follows. */
static const char *const OPS[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv",
                                  "Send", "Recv", "AlltoAll", "Scatter", "Gather", "AllGatherV"};
static const char *const TYPES[] = {"ncclInt8", "ncclUint8", "ncclInt32", "ncclUint32", "ncclInt64", "ncclUint64", "ncclFloat16",
                                    "ncclFloat32", "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};
static const uint8_t SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
enum { UNKNOWN = 255, TYPE_COUNT = sizeof SIZES, OP_COUNT = sizeof OPS / sizeof OPS[0] };

static uint8_t index_of(const char *text, const char *const *names, int known) {
  for (int i = 0; text != NULL && i < known; i++)
    if (!strcmp(text, names[i])) return (uint8_t)i;
  return UNKNOWN;
}

/* Whether a record may still change: it is stepped over, so that what hangs outlives what others go on to do. */
static bool is_open(struct file *file, struct record *record) {
  struct comm *comm = &file->comm[record->comm % COMMS];
  if (!get(record->serial) || get(comm->state) != LIVE || (uint16_t)get(comm->generation) != record->generation)
    return false;
  if (!get(record->launched_ns) || get(record->transfers_started) > get(record->transfers_ended)) return true;
  if (!(get(record->flags) & SEES_KERNELS)) return false;
  uint32_t started = get(record->kernels_started);
  return !started || started > get(record->kernels_ended);
}

static struct record *claim(struct file *file, uint64_t *serial) {
  struct record *record;
  int tries = 0;
  do {
    *serial = count(file->next) + 1;
    record = &file->ring[*serial % SLOTS];
  } while (is_open(file, record) && ++tries <= STEP_OVER);
  return record;
}

/* The number of a send to this peer, or of a receive from it, from 1; 0 where the table has no room. */
static uint64_t next_of_pair(struct file *file, uint64_t comm, uint32_t generation, uint8_t kind, int32_t peer) {
  uint64_t key = comm << 48 | (uint64_t)(uint16_t)generation << 32 | (uint64_t)(kind == SEND) << 31 | ((uint32_t)peer & 0x7FFFFFFF);
  uint64_t at = key * 0x9E3779B97F4A7C15u >> 32;
  for (int i = 0; i < PROBES; i++) {
    struct pair *pair = &file->pair[(at + (uint64_t)i) % PAIRS];
    uint64_t there = get(pair->key);
    if (there == key) return count(pair->count) + 1;
  }
  for (int i = 0; i < PROBES; i++) {
    struct pair *pair = &file->pair[(at + (uint64_t)i) % PAIRS];
    uint64_t nothing = 0;
    if (__atomic_compare_exchange_n(&pair->key, &nothing, key, false, RELAXED, RELAXED)) return count(pair->count) + 1;
  }
  count(file->no_room);
  return 0;
}

static void *begin(struct file *file, const void *context, const struct operation *what) {
  struct comm *comm = comm_of(file, context);
  if (comm == NULL) {
    count(file->unknown);
    return NULL;
  }
  if (what->hash) put(comm->hash, what->hash); /* before v4 only operations have it */
  if (what->rank >= 0) put(comm->rank, what->rank);
  uint64_t index = (uint64_t)(comm - file->comm);
  uint32_t generation = get(comm->generation);
  bool directed = what->kind == SEND || what->kind == RECEIVE;
  uint64_t serial;
  struct record *record = claim(file, &serial);
  __atomic_store_n(&record->serial, 0, __ATOMIC_RELEASE);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  memset((char *)record + sizeof record->serial, 0, sizeof *record - sizeof record->serial);
  record->number = directed ? next_of_pair(file, index + 1, generation, what->kind, what->peer)
                            : (uint64_t)count(comm->collectives) + 1;
  record->nccl_number = what->nccl_number;
  record->begun_ns = now_ns(CLOCK_REALTIME);
  record->elements = what->elements;
  record->bytes = what->datatype < TYPE_COUNT ? what->elements * SIZES[what->datatype] : 0;
  record->comm = (uint16_t)index;
  record->generation = (uint16_t)generation;
  record->peer = what->peer;
  record->kind = what->kind;
  record->op = what->op;
  record->datatype = what->datatype;
  record->channels = what->channels;
  record->flags = what->flags;
  if (directed && what->peer == get(comm->rank)) record->flags &= ~(uint32_t)SEES_KERNELS; /* a copy: NCCL reports none */
  record->check = (uint32_t)serial;
  __atomic_store_n(&record->serial, serial, __ATOMIC_RELEASE);
  return handle(serial, OF_OPERATION);
}

static void started_on_device(struct record *record) {
  uint64_t never = 0;
  if (!get(record->started_ns))
    __atomic_compare_exchange_n(&record->started_ns, &never, now_ns(CLOCK_REALTIME), false, RELAXED, RELAXED);
}

static void moved(struct record *record) { put(record->moved_ns, now_ns(CLOCK_REALTIME_COARSE)); }

/* ------------------------------------------------------------------ NCCL's descriptors */

enum { GROUP = 1 << 0, COLL = 1 << 1, P2P = 1 << 2, PROXY_OP = 1 << 3, PROXY_STEP = 1 << 4, KERNEL_CH = 1 << 6 };
enum { GROUP_API = 1 << 8, COLL_API = 1 << 9, P2P_API = 1 << 10, CE_COLL = 1 << 12 };
enum { STATE_SEND_WAIT = 9 }; /* of a step: the data has left the GPU */

struct head { uint64_t type; void *parent; int32_t rank; };
struct coll_v1 { const char *name; uint64_t hash, number; uint8_t func; const void *in; void *out; size_t elements; int root; uint8_t datatype;
                 uint32_t op; size_t traffic; uint8_t channels; };
struct coll_v2 { const char *name; uint64_t hash, number; const char *func; const void *in; void *out; size_t elements; int root;
                 const char *datatype; };
struct coll_v4 { uint64_t number; const char *func; const void *in; void *out; size_t elements; int root; const char *datatype;
                 uint8_t channels; };
struct p2p_v1 { const char *name; uint64_t hash; uint8_t func; void *at; uint8_t datatype; size_t elements; int peer; };
struct p2p_v2 { const char *name; uint64_t hash; const char *func; void *at; const char *datatype; size_t elements; int peer; };
struct p2p_v4 { const char *func; void *at; const char *datatype; size_t elements; int peer; uint8_t channels; };
struct coll_api { const char *func; size_t elements; const char *datatype; int root; void *stream; bool captured; };
struct p2p_api { const char *func; size_t elements; const char *datatype; void *stream; bool captured; };
struct proxy_op { int pid; uint8_t channel; int peer, steps, chunk, is_send; };

static void read_coll(struct operation *what, const void *body, int version) {
  if (version == 1) {
    const struct coll_v1 *c = body;
    what->hash = c->hash, what->nccl_number = c->number, what->elements = c->elements, what->peer = c->root;
    what->op = c->func, what->datatype = c->datatype;
  } else if (version < 4) {
    const struct coll_v2 *c = body;
    what->hash = c->hash, what->nccl_number = c->number, what->elements = c->elements, what->peer = c->root;
    what->op = index_of(c->func, OPS, OP_COUNT), what->datatype = index_of(c->datatype, TYPES, TYPE_COUNT);
  } else {
    const struct coll_v4 *c = body;
    what->nccl_number = c->number, what->elements = c->elements, what->peer = c->root, what->channels = c->channels;
    what->op = index_of(c->func, OPS, OP_COUNT), what->datatype = index_of(c->datatype, TYPES, TYPE_COUNT);
  }
}

static void read_p2p(struct operation *what, const void *body, int version) {
  if (version == 1) {
    const struct p2p_v1 *p = body;
    what->hash = p->hash, what->elements = p->elements, what->peer = p->peer;
    what->op = p->func, what->datatype = p->datatype;
  } else if (version < 4) {
    const struct p2p_v2 *p = body;
    what->hash = p->hash, what->elements = p->elements, what->peer = p->peer;
    what->op = index_of(p->func, OPS, OP_COUNT), what->datatype = index_of(p->datatype, TYPES, TYPE_COUNT);
  } else {
    const struct p2p_v4 *p = body;
    what->elements = p->elements, what->peer = p->peer, what->channels = p->channels;
    what->op = index_of(p->func, OPS, OP_COUNT), what->datatype = index_of(p->datatype, TYPES, TYPE_COUNT);
  }
  what->kind = what->op == 7 ? RECEIVE : SEND;
}

static uint32_t flags_of(const void *parent, int version) {
  uint32_t flags = version >= 3 && kernels_wanted ? SEES_KERNELS : 0;
  if (version < 5) return flags | CAPTURE_UNKNOWN;
  return is_of(parent) == OF_CAPTURE ? flags | CAPTURED : flags;
}

static void *begin_transfer(struct file *file, const struct head *event, const struct proxy_op *body) {
  if (is_of(event->parent) != OF_OPERATION || (uint32_t)body->pid != file->pid) return NULL; /* PXN: another process's */
  struct record *record = record_of(file, event->parent);
  if (record == NULL) return NULL;
  count(record->transfers_started);
  if (body->steps > 0) __atomic_fetch_add(&record->steps_wanted, (uint32_t)body->steps, RELAXED);
  moved(record);
  return handle(number_of(event->parent), body->is_send ? OF_SENT : OF_RECEIVED);
}

static void *begin_step(struct file *file, const struct head *event) {
  unsigned of = is_of(event->parent);
  if (of != OF_SENT && of != OF_RECEIVED) return NULL;
  struct record *record = record_of(file, event->parent);
  if (record == NULL) return NULL;
  count(record->steps_started);
  moved(record);
  return handle(number_of(event->parent), of == OF_SENT ? OF_SENT_STEP : OF_RECEIVED_STEP);
}

static void *begin_kernel(struct file *file, const struct head *event) {
  struct record *record = is_of(event->parent) == OF_OPERATION ? record_of(file, event->parent) : NULL;
  if (record == NULL) return NULL;
  count(record->kernels_started);
  started_on_device(record);
  return handle(number_of(event->parent), OF_KERNEL);
}

static void *begin_event(struct file *file, const void *context, uint64_t type, const struct head *event, int version) {
  const void *body = event + 1;
  struct operation what = {.rank = event->rank, .kind = COLLECTIVE, .flags = flags_of(event->parent, version)};
  switch (type) {
  case COLL:
    read_coll(&what, body, version);
    return begin(file, context, &what);
  case P2P:
    read_p2p(&what, body, version);
    return begin(file, context, &what);
  case CE_COLL:
    read_coll(&what, body, 4); /* it begins alike; the channels are another field there */
    what.kind = COPY_ENGINE, what.channels = 0, what.flags &= ~(uint32_t)SEES_KERNELS;
    return begin(file, context, &what);
  case PROXY_OP:
    return begin_transfer(file, event, body);
  case PROXY_STEP:
    return begin_step(file, event);
  case KERNEL_CH:
    return begin_kernel(file, event);
  case GROUP: /* before 2.28 NCCL reports nothing below a group without a handle */
  case GROUP_API:
    return handle(1, OF_ELSE);
  case COLL_API:
    return handle(1, ((const struct coll_api *)body)->captured ? OF_CAPTURE : OF_ELSE);
  case P2P_API:
    return handle(1, ((const struct p2p_api *)body)->captured ? OF_CAPTURE : OF_ELSE);
  default:
    count(file->unknown);
    return NULL;
  }
}

/* ------------------------------------------------------------------ what NCCL calls */

static int start_event(const void *context, void **event_handle, const struct head *event, int version) {
  struct file *file = __atomic_load_n(&mapped, __ATOMIC_ACQUIRE);
  if (event_handle == NULL) return 0;
  *event_handle = NULL;
  if (file == NULL || event == NULL) return 0;
  uint64_t type = version < 5 ? *(const uint8_t *)event : event->type; /* what follows the byte is not set */
  *event_handle = begin_event(file, context, type, event, version);
  return 0;
}

static int stop_event(void *h) {
  struct file *file = __atomic_load_n(&mapped, __ATOMIC_ACQUIRE);
  unsigned of = is_of(h);
  if (file == NULL || of < OF_OPERATION || of > OF_KERNEL) return 0;
  struct record *record = record_of(file, h);
  if (record == NULL) return 0;
  if (of == OF_OPERATION) {
    put(record->launched_ns, now_ns(CLOCK_REALTIME));
  } else if (of == OF_KERNEL) {
    put(record->ended_ns, now_ns(CLOCK_REALTIME)); /* before it is counted: the last one's time is then there */
    __atomic_fetch_add(&record->kernels_ended, 1, __ATOMIC_RELEASE);
  } else if (of == OF_SENT || of == OF_RECEIVED) {
    count(record->transfers_ended);
    moved(record);
  } else {
    count(record->steps_ended);
    moved(record);
  }
  return 0;
}

static int record_state(void *h, int state, const void *unused) {
  struct file *file = __atomic_load_n(&mapped, __ATOMIC_ACQUIRE);
  (void)unused;
  if (file == NULL || is_of(h) != OF_SENT_STEP || state != STATE_SEND_WAIT) return 0;
  struct record *record = record_of(file, h);
  if (record == NULL) return 0;
  if (!(get(record->flags) & SEEN_BY_NETWORK)) __atomic_fetch_or(&record->flags, SEEN_BY_NETWORK, RELAXED);
  started_on_device(record);
  return 0;
}

static int finalize(void *context) {
  pthread_mutex_lock(&making);
  struct comm *comm = mapped == NULL ? NULL : comm_of(mapped, context);
  if (comm != NULL) {
    uint64_t index = (uint64_t)(comm - mapped->comm) + 1;
    for (int i = 0; i < PAIRS; i++) {
      struct pair *pair = &mapped->pair[i];
      if (get(pair->key) >> 48 == index) put(pair->count, 0), put(pair->key, 0);
    }
    put(comm->state, ENDED);
  }
  pthread_mutex_unlock(&making);
  return 0;
}

static struct comm *free_comm(struct file *file) {
  struct comm *oldest = NULL;
  for (int i = 0; i < COMMS; i++) {
    struct comm *comm = &file->comm[i];
    if (comm->state == UNUSED) return comm;
    if (comm->state == ENDED && (oldest == NULL || comm->made_ns < oldest->made_ns)) oldest = comm;
  }
  return oldest;
}

struct told { /* of a communicator */
  uint64_t hash;
  int nodes, ranks, rank;
  const char *name;
};

static int init(void **context, int *mask, int version, const struct told *told) {
  if (context == NULL || mask == NULL) return 0;
  pthread_mutex_lock(&making);
  struct file *file = open_file();
  struct comm *comm = file == NULL ? NULL : free_comm(file);
  *context = NULL;
  if (comm != NULL) {
    put(comm->state, UNUSED);
    put(comm->generation, comm->generation % 0xFFFF + 1);
    comm->hash = told->hash;
    comm->ranks = (uint32_t)told->ranks, comm->nodes = (uint32_t)told->nodes, comm->rank = told->rank;
    comm->collectives = 0;
    comm->made_ns = now_ns(CLOCK_REALTIME);
    memset(comm->name, 0, sizeof comm->name);
    if (told->name != NULL) memcpy(comm->name, told->name, strnlen(told->name, sizeof comm->name - 1));
    file->interface = (uint32_t)version;
    __atomic_store_n(&comm->state, LIVE, __ATOMIC_RELEASE);
    *context = handle((uint64_t)comm->generation << 16 | (uint64_t)(comm - file->comm + 1), OF_COMM);
  } else if (file != NULL) {
    count(file->no_room);
  }
  /* One mask for all communicators of a process: those that are recorded keep theirs. */
  int events = COLL | P2P | PROXY_OP | PROXY_STEP;
  if (version >= 3 && kernels_wanted) events |= KERNEL_CH;
  if (version >= 6) events |= CE_COLL;
  put(*mask, file == NULL ? 0 : events);
  pthread_mutex_unlock(&making);
  return 0;
}

static int init_before_v4(void **context, int *mask, int version) {
  struct told nothing = {.rank = -1};
  return init(context, mask, version, &nothing);
}

static int init_v1(void **context, int *mask) { return init_before_v4(context, mask, 1); }
static int init_v2(void **context, int *mask) { return init_before_v4(context, mask, 2); }
static int init_v3(void **context, int *mask) { return init_before_v4(context, mask, 3); }

static int init_v4(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks, int rank, void *log) {
  struct told told = {hash, nodes, ranks, rank, name};
  (void)log;
  return init(context, mask, 4, &told);
}

static int init_v5(void **context, uint64_t hash, int *mask, const char *name, int nodes, int ranks, int rank, void *log) {
  struct told told = {hash, nodes, ranks, rank, name};
  (void)log;
  return init(context, mask, 5, &told);
}

static int init_v6(void **context, uint64_t hash, int *mask, const char *name, int nodes, int ranks, int rank, void *log) {
  struct told told = {hash, nodes, ranks, rank, name};
  (void)log;
  return init(context, mask, 6, &told);
}

#define START(v) static int start_v##v(void *c, void **h, void *event) { return start_event(c, h, event, v); }
START(1) START(2) START(3) START(4) START(5) START(6)

/* Six names of one form: NCCL takes the newest that it knows. Only `init` and the descriptors differ. */
struct plugin {
  const char *name;
  void *init;
  int (*start)(void *, void **, void *);
  int (*stop)(void *);
  int (*record)(void *, int, const void *);
  int (*finalize)(void *);
};
#define PLUGIN(v) \
  extern const struct plugin ncclProfiler_v##v; \
  EXPORT const struct plugin ncclProfiler_v##v = {"hangdoctor", init_v##v, start_v##v, stop_event, record_state, finalize};
PLUGIN(1) PLUGIN(2) PLUGIN(3) PLUGIN(4) PLUGIN(5) PLUGIN(6)

/* The state of the driver and what its calls are made of; `driver_api.cpp` has the calls themselves. Every call is recorded, made to
 * fail on request, refused without a context. Numbers and structures as in cuda.h of CUDA 13. */
#pragma once

#include "engine.h"

#include <cstring>
#include <mutex>
#include <set>

#pragma GCC visibility push(hidden) /* nothing here is for kernels, which may see the rest of twd */
namespace twd::driver {

enum Result {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201, NO_BINARY_FOR_GPU = 209, UNSUPPORTED_PTX_VERSION = 222, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600,
    LAUNCH_FAILED = 719, NOT_SUPPORTED = 801
};
struct Settings {
    int capability = 90, multiprocessors = 4, driver = 13000, devices = 1;
    size_t memory = (size_t)8 << 30;
};

struct Image {
    std::vector<unsigned char> bytes;
    std::string library, architecture; /* "sm_90a" for a cubin, "compute_80" for PTX */
};
struct Function {
    Module *module;
    Kernel kernel;
    std::string name;
    size_t most_dynamic = 48 << 10;
};
struct Event;
struct Operation { /* in a stream */
    std::function<void()> run;
    Event *waits_for = nullptr;
};
struct Stream {
    std::deque<Operation> queue;
};
struct Event {
    bool recorded = false, done = true;
    double time_ms = 0;
};
struct Node {
    enum Kind { LAUNCH, COPY, FILL, NOTHING } kind = NOTHING;
    Function *function = nullptr;
    Launch launch;
    std::function<void(uint32_t node)> act;
    std::vector<std::pair<Node *, bool>> after; /* and whether the edge is programmatic */
    unsigned index = 0;
};
struct Graph {
    std::vector<std::unique_ptr<Node>> nodes;
};
struct Executable {
    std::vector<std::unique_ptr<Node>> nodes;
    std::map<void *, Node *> copies; /* by the node of the graph that was instantiated */
};
struct Injected { std::string function; int nth, result; };

extern Settings settings;
extern std::recursive_mutex lock;
extern std::vector<std::string> calls;
extern std::map<std::string, int> call_counts;
extern std::vector<Injected> injected;
extern std::vector<Image> images;
extern bool initialised;
extern int retained;
extern int sticky; /* the context is lost after a kernel failed */
extern std::string report;
extern size_t memory_used;
extern double device_clock_ms;
extern std::map<uint64_t, size_t> sizes;
extern std::map<const char *, size_t> pinned;
extern std::set<Module *> modules;
extern std::set<Stream *> streams;
extern std::set<Event *> events;
extern std::set<Graph *> graphs;
extern std::set<Executable *> executables;
extern Stream default_stream;
extern thread_local std::vector<void *> contexts;
extern int primary_context; /* its address is the handle */
extern std::map<std::pair<Module *, std::string>, std::unique_ptr<Function>> functions;

/* ---- Every call: recorded, made to fail on request, refused without a context --------------------------------------- */

struct Refused { int result; };

template <class F> int api(const char *name, bool needs_context, F body) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    calls.push_back(name);
    int nth = ++call_counts[name];
    for (const Injected &i : injected)
        if (i.function == name && i.nth == nth) return i.result;
    if (!initialised && strcmp(name, "cuInit") && strcmp(name, "cuDriverGetVersion")) return NOT_INITIALIZED;
    if (needs_context && (contexts.empty() || !retained)) return INVALID_CONTEXT;
    if (needs_context && sticky && !strstr(name, "Free") && !strstr(name, "Destroy") && !strstr(name, "Unload")) return sticky;
    try {
        body();
        return SUCCESS;
    } catch (const Refused &refused) {
        return refused.result;
    } catch (const Fault &f) {
        report = f.kind + ": " + f.text;
        return sticky = LAUNCH_FAILED;
    }
}

inline void demand(bool holds, int result) {
    if (!holds) throw Refused{result};
}
template <class T> T *known(std::set<T *> &all, void *handle) {
    demand(all.count(static_cast<T *>(handle)), INVALID_HANDLE);
    return static_cast<T *>(handle);
}

void remark(const char *format, ...) __attribute__((format(printf, 1, 2)));

template <class T> T attribute_value(const void *value) {
    T result;
    memcpy(&result, value, sizeof result);
    return result;
}
struct Copy3D { /* CUDA_MEMCPY3D */
    struct Side { size_t x, y, z, lod; unsigned type; const void *host; uint64_t device; void *array, *reserved; size_t pitch, height; } from, to;
    size_t width, height, depth;
};

Stream *stream_of(void *handle);
void run_one(Stream *s);
void run_until(Stream *s, const Event *until);
void enqueue(Stream *s, std::function<void()> run, Event *waits_for = nullptr);
void run_everything();
bool is_pinned(const void *p);
size_t static_shared(const Function &f);
Launch launch_of(Function *f, uint3 grid, uint3 block, uint3 cluster, size_t shared, void **parameters);
Launch copy_of(const Launch &from);
void run_alone(const Launch &what);
void run_graph(Executable &e);
Node *add_node(Graph *g, void *const *after, size_t count);
uint64_t allocate_counted(size_t bytes);
void free_counted(uint64_t p);
void copy_between(uint64_t to, bool to_device, uint64_t from, bool from_device, size_t bytes, uint32_t node);
void check_device(uint64_t p, size_t bytes);
Module *load(const void *bytes);
Function *function_of(Module *m, const char *name);
Function *known_function(void *handle);
bool configure(const std::string &text);
std::string state();

} // namespace twd::driver
#pragma GCC visibility pop

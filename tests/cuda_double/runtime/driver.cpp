/* What the driver keeps and does: streams, graphs, memory, modules, and how a test configures it.
 *
 * Streams keep their work in a queue until something waits for it, except where copies land early; the nodes of a launched graph
 * run in the order of the mode, any that the edges allow. */
#include "driver.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <link.h>
#include <sstream>

namespace twd::driver {

Settings settings;
std::recursive_mutex lock;
std::vector<std::string> calls;
std::map<std::string, int> call_counts;
std::vector<Injected> injected;
std::vector<Image> images;
bool initialised;
int retained;
int sticky; /* the context is lost after a kernel failed */
std::string report;
size_t memory_used;
double device_clock_ms;
std::map<uint64_t, size_t> sizes;
std::map<const char *, size_t> pinned;
std::set<Module *> modules;
std::set<Stream *> streams;
std::set<Event *> events;
std::set<Graph *> graphs;
std::set<Executable *> executables;
Stream default_stream;
thread_local std::vector<void *> contexts;
int primary_context; /* its address is the handle */

void remark(const char *format, ...) {
    char text[500];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    calls.back() += std::string(" ") + text;
}

/* ---- Streams ---------------------------------------------------------------------------------------------------------- */

Stream *stream_of(void *handle) { return handle ? known(streams, handle) : &default_stream; }

void run_one(Stream *s) {
    Operation operation = std::move(s->queue.front());
    s->queue.pop_front();
    if (operation.waits_for && !operation.waits_for->done)
        for (Stream *other : streams)
            if (other != s) run_until(other, operation.waits_for);
    new_operation();
    operation.run();
    device_clock_ms += 0.001;
}

void run_until(Stream *s, const Event *until) {
    while (!s->queue.empty() && !(until && until->done)) run_one(s);
}

void enqueue(Stream *s, std::function<void()> run, Event *waits_for) {
    s->queue.push_back({std::move(run), waits_for});
    if (modes.landing == Landing::Early) run_until(s, nullptr);
}

/* All streams, taking turns as the mode says. */
void run_everything() {
    std::vector<Stream *> all{&default_stream};
    all.insert(all.end(), streams.begin(), streams.end());
    for (;;) {
        std::vector<Stream *> busy;
        for (Stream *s : all)
            if (!s->queue.empty()) busy.push_back(s);
        if (busy.empty()) return;
        run_one(modes.order == Order::Forward ? busy.front() : modes.order == Order::Backward ? busy.back() : busy[random_below((unsigned)busy.size())]);
    }
}

bool is_pinned(const void *p) {
    auto found = pinned.upper_bound(static_cast<const char *>(p));
    return found != pinned.begin() && p < std::prev(found)->first + std::prev(found)->second;
}

/* ---- Launches and graphs ---------------------------------------------------------------------------------------------- */

size_t static_shared(const Function &f) { return (size_t)(f.module->info.shared_end - f.module->info.shared_begin); }

Launch launch_of(Function *f, uint3 grid, uint3 block, uint3 cluster, size_t shared, void **parameters) {
    const size_t threads = (size_t)block.x * block.y * block.z, blocks = (size_t)cluster.x * cluster.y * cluster.z;
    demand(f, INVALID_HANDLE);
    demand(grid.x && grid.y && grid.z && grid.x < 1u << 31 && grid.y < 65536 && grid.z < 65536, INVALID_VALUE);
    demand(block.x && block.y && block.z && block.x <= 1024 && block.y <= 1024 && block.z <= 64 && threads <= 1024, INVALID_VALUE);
    demand(threads <= f->kernel.max_threads, INVALID_VALUE);
    demand(shared <= f->most_dynamic && shared + static_shared(*f) <= MOST_SHARED, INVALID_VALUE);
    demand(blocks == 1 || settings.capability >= 90, NOT_SUPPORTED);
    demand(blocks && blocks <= 8 && grid.x % cluster.x == 0 && grid.y % cluster.y == 0 && grid.z % cluster.z == 0, INVALID_VALUE);
    demand(parameters || !f->kernel.parameters, INVALID_VALUE);
    Launch l;
    l.module = f->module, l.kernel = &f->kernel, l.name = f->name;
    l.grid = grid, l.block = block, l.cluster = cluster, l.shared = shared;
    for (int i = 0; i < f->kernel.parameters; i++) { /* as the driver does, the values are copied now */
        l.parameters.emplace_back(f->kernel.size[i] / sizeof(Line) + 1);
        memcpy(l.parameters.back().data(), parameters[i], f->kernel.size[i]);
    }
    return l;
}

Launch copy_of(const Launch &from) {
    Launch l;
    l.kernel = from.kernel, l.module = from.module, l.name = from.name, l.grid = from.grid, l.block = from.block, l.cluster = from.cluster;
    l.shared = from.shared, l.parameters = from.parameters;
    return l;
}

/* After a fault nothing of a launch goes on, and nobody remembers it. */
template <class F> static void run_or_abandon(F f) {
    SignalsAreFaults signals;
    try {
        f();
    } catch (const Fault &) {
        engine.abandon();
        throw;
    }
}

void run_alone(const Launch &what) {
    Launch l = copy_of(what);
    run_or_abandon([&] {
        engine.start(l);
        engine.finish(l);
    });
}

/* One launch of a graph.
 *
 * Nodes run in an order that the edges allow, one after another; where the order is random, also beside each other. A kernel with
 * programmatic edges starts at the earliest moment that a GPU allows: as soon as those it depends on in that way have let their
 * dependents start, or ended. Those it starts before may themselves be waiting, so that a whole chain is under way at once. What it
 * waits for is the end of its own predecessors, not of theirs: a kernel that waits for nothing ends before they do. */
struct Play {
    static constexpr unsigned AT_ONCE = 6, BESIDE = 2; /* launches: of a chain, and of those that could as well run one after another */
    Executable &e;
    std::vector<Launch> &launches;
    const size_t count;
    std::vector<bool> started, done, never_early;
    Ancestors at_start, waited;
    size_t finished = 0;

    Play(Executable &e, std::vector<Launch> &launches)
        : e(e), launches(launches), count(e.nodes.size()), started(count), done(count), never_early(count), at_start(count, std::vector<bool>(count)),
          waited(at_start) {
        for (size_t i = 0; i < count; i++)
            never_early[i] = modes.landing == Landing::Early || (modes.landing == Landing::Random && random_below(4) == 0);
        set_ancestors(at_start, waited);
    }

    /* What is known to be over once `n` is: all that it knew when it ended. */
    void add_past(std::vector<bool> &to, const Node &n) const {
        const bool knows = n.kind != Node::LAUNCH || launches[n.index].has_waited || !programmatic(n);
        to[n.index] = true;
        for (size_t i = 0; i < count; i++) to[i] = to[i] || (knows ? waited : at_start)[n.index][i];
    }
    static bool programmatic(const Node &n) {
        return std::any_of(n.after.begin(), n.after.end(), [](auto &edge) { return edge.second; });
    }

    /* Of the nodes before `n`, all have ended; or those that it may begin before have let it. */
    bool ready(const Node &n, bool early) const {
        return std::all_of(n.after.begin(), n.after.end(), [&](auto &edge) {
            const unsigned i = edge.first->index;
            return done[i] || (early && edge.second && started[i] && launches[i].lets_dependents_start);
        });
    }

    void note_knowledge(const Node &n) {
        for (auto &[earlier, by_program] : n.after) {
            if (!by_program) add_past(at_start[n.index], *earlier);
            if (done[earlier->index]) add_past(waited[n.index], *earlier);
        }
        set_ancestors(at_start, waited);
    }

    void begin(Node &n, bool early) {
        started[n.index] = true;
        note_knowledge(n);
        if (n.kind != Node::LAUNCH) {
            if (n.act) n.act(n.index);
            end(n);
            return;
        }
        Launch &l = launches[n.index] = copy_of(n.launch);
        l.node = n.index;
        l.waits_for_dependency = early;
        engine.start(l);
    }

    void end(Node &n) {
        done[n.index] = true, finished++;
        for (auto &next : e.nodes) { /* those that have begun, and wait for it */
            if (!started[next->index] || done[next->index] || !launches[next->index].waits_for_dependency || !ready(*next, false)) continue;
            note_knowledge(*next);
            engine.dependency_met(launches[next->index]);
        }
    }

    unsigned under_way() const { return (unsigned)(std::count(started.begin(), started.end(), true) - (long)finished); }

    void begin_early() {
        for (auto &next : e.nodes) {
            if (started[next->index] || next->kind != Node::LAUNCH || never_early[next->index] || ready(*next, false) || !ready(*next, true)) continue;
            if (under_way() < AT_ONCE && engine.has_room()) begin(*next, true);
        }
    }

    bool begin_one() {
        std::vector<Node *> choice;
        for (auto &n : e.nodes)
            if (!started[n->index] && ready(*n, false)) choice.push_back(n.get());
        if (choice.empty()) return false;
        begin(*(modes.order == Order::Forward ? choice.front() : modes.order == Order::Backward ? choice.back() : choice[random_below((unsigned)choice.size())]), false);
        return true;
    }

    void run() {
        while (finished < count) {
            const bool beside = modes.order == Order::Random && under_way() < BESIDE && engine.has_room() && random_below(4) == 0;
            if ((!under_way() || beside) && begin_one()) continue;
            begin_early();
            const bool moved = engine.go_on();
            bool ended = false;
            for (auto &n : e.nodes)
                if (started[n->index] && !done[n->index] && launches[n->index].done) end(*n), ended = true;
            if (moved || ended) continue;
            for (auto &n : e.nodes)
                if (started[n->index] && !done[n->index]) engine.stand_still(launches[n->index]);
        }
    }
};

void run_graph(Executable &e) {
    std::vector<Launch> launches(e.nodes.size()); /* they outlive a fault until they are abandoned */
    run_or_abandon([&] { Play(e, launches).run(); });
}

Node *add_node(Graph *g, void *const *after, size_t count) {
    auto n = std::make_unique<Node>();
    for (size_t i = 0; i < count; i++) {
        auto *earlier = static_cast<Node *>(after[i]);
        demand(std::any_of(g->nodes.begin(), g->nodes.end(), [=](auto &known) { return known.get() == earlier; }), INVALID_VALUE);
        n->after.push_back({earlier, false});
    }
    n->index = (unsigned)g->nodes.size();
    g->nodes.push_back(std::move(n));
    return g->nodes.back().get();
}

/* ---- Memory ----------------------------------------------------------------------------------------------------------- */

uint64_t allocate_counted(size_t bytes) {
    demand(bytes > 0, INVALID_VALUE);
    demand(memory_used + bytes <= settings.memory, OUT_OF_MEMORY);
    uint64_t p = allocate(bytes);
    demand(p, OUT_OF_MEMORY);
    memory_used += bytes;
    sizes[p] = bytes;
    remark("%zu", bytes);
    return p;
}

void free_counted(uint64_t p) {
    bool was;
    if (!p) return;
    demand(deallocate(p, was), INVALID_VALUE);
    memory_used -= sizes[p];
    sizes.erase(p);
}

void copy_between(uint64_t to, bool to_device, uint64_t from, bool from_device, size_t bytes, uint32_t node) {
    if (to_device && !allocated(to, bytes)) throw Fault{"use-after-free", "a copy to device memory that is not allocated any more"};
    if (from_device && !allocated(from, bytes)) throw Fault{"use-after-free", "a copy from device memory that is not allocated any more"};
    if (from_device) check_node(from, bytes, Access::Read, node);
    if (to_device) check_node(to, bytes, Access::Write, node);
    memmove((void *)to, (const void *)from, bytes);
}

void check_device(uint64_t p, size_t bytes) { demand(allocated(p, bytes), INVALID_VALUE); }

/* ---- Modules ---------------------------------------------------------------------------------------------------------- */

static int find_range(struct dl_phdr_info *info, size_t, void *data) {
    auto *m = static_cast<Module *>(data);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto &header = info->dlpi_phdr[i];
        if (header.p_type != PT_LOAD) continue;
        const char *begin = (const char *)info->dlpi_addr + header.p_vaddr;
        if ((const char *)m->call >= begin && (const char *)m->call < begin + header.p_memsz) {
            m->begin = (const char *)info->dlpi_addr;
            for (int j = 0; j < info->dlpi_phnum; j++)
                if (info->dlpi_phdr[j].p_type == PT_LOAD)
                    m->end = std::max(m->end, (const char *)info->dlpi_addr + info->dlpi_phdr[j].p_vaddr + info->dlpi_phdr[j].p_memsz);
            return 1;
        }
    }
    return 0;
}

static bool starts_with(const unsigned char *p, const std::vector<unsigned char> &bytes) {
    for (size_t i = 0; i < bytes.size(); i++)
        if (p[i] != bytes[i]) return false;
    return true;
}

Module *load(const void *bytes) {
    const Image *image = nullptr;
    for (const Image &i : images)
        if (starts_with(static_cast<const unsigned char *>(bytes), i.bytes)) image = &i;
    demand(image, INVALID_IMAGE);
    const std::string &a = image->architecture;
    const bool cubin = a.rfind("sm_", 0) == 0;
    int capability = atoi(a.c_str() + (cubin ? 3 : 8));
    if (cubin && a.back() == 'a') demand(capability == settings.capability, NO_BINARY_FOR_GPU);
    if (cubin) demand(capability / 10 == settings.capability / 10 && capability <= settings.capability, NO_BINARY_FOR_GPU);
    if (!cubin) demand(capability <= settings.capability, NO_BINARY_FOR_GPU);
    if (!cubin) demand(settings.driver >= 13000, UNSUPPORTED_PTX_VERSION);
    auto m = std::make_unique<Module>();
    m->library = dlopen(image->library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!m->library) throw Fault{"harness", dlerror()};
    m->call = dlsym(m->library, "twd_module");
    if (!m->call) throw Fault{"harness", image->library + " was not built by the harness"};
    m->info = ((ModuleInfo(*)())m->call)();
    dl_iterate_phdr(find_range, m.get());
    return *modules.insert(m.release()).first;
}

std::map<std::pair<Module *, std::string>, std::unique_ptr<Function>> functions;

Function *function_of(Module *m, const char *name) {
    auto &f = functions[{m, name}];
    if (!f) {
        void *describe = dlsym(m->library, ("twd_kernel_" + std::string(name)).c_str());
        if (!describe) functions.erase({m, name});
        demand(describe, NOT_FOUND);
        f = std::make_unique<Function>();
        f->module = m, f->name = name, f->kernel = ((Kernel(*)())describe)();
    }
    return f.get();
}

Function *known_function(void *handle) {
    for (auto &[key, f] : functions)
        if (f.get() == handle) return f.get();
    throw Refused{INVALID_HANDLE};
}

/* ---- Settings of the test --------------------------------------------------------------------------------------------- */

bool configure(const std::string &text) {
    std::istringstream words(text);
    std::string word;
    while (words >> word) {
        size_t equals = word.find('=');
        if (equals == std::string::npos) return false;
        std::string name = word.substr(0, equals), value = word.substr(equals + 1);
        if (name == "order" && (value == "forward" || value == "backward" || value == "random"))
            modes.order = value == "forward" ? Order::Forward : value == "backward" ? Order::Backward : Order::Random;
        else if (name == "landing" && (value == "early" || value == "late" || value == "random"))
            modes.landing = value == "early" ? Landing::Early : value == "late" ? Landing::Late : Landing::Random;
        else if (name == "seed")
            modes.seed = (unsigned)atoi(value.c_str());
        else if (name == "resident")
            modes.resident = value == "any" ? 0 : (unsigned)std::max(1, atoi(value.c_str()));
        else if (name == "fill" && (value == "nan" || value == "large"))
            modes.fill = value == "nan" ? 0xff : 0x7b; /* 0x7b7b: 6e4 in fp16, 1e36 in bf16 and fp32 */
        else if (name == "sm")
            settings.capability = atoi(value.c_str());
        else if (name == "multiprocessors")
            settings.multiprocessors = atoi(value.c_str());
        else if (name == "driver")
            settings.driver = atoi(value.c_str());
        else if (name == "devices")
            settings.devices = atoi(value.c_str());
        else if (name == "memory")
            settings.memory = strtoull(value.c_str(), nullptr, 10);
        else if (name == "fail") { /* function:nth call:result */
            size_t first = value.find(':'), second = value.rfind(':');
            if (first == std::string::npos || second == first) return false;
            injected.push_back({value.substr(0, first), atoi(value.c_str() + first + 1), atoi(value.c_str() + second + 1)});
        } else if (name == "module") { /* image:architecture:library */
            size_t first = value.find(':'), second = value.find(':', first + 1);
            if (first == std::string::npos || second == std::string::npos) return false;
            std::ifstream file(value.substr(0, first), std::ios::binary);
            std::vector<unsigned char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
            if (bytes.empty()) return false;
            images.push_back({bytes, value.substr(second + 1), value.substr(first + 1, second - first - 1)});
        } else
            return false;
    }
    return true;
}

std::string state() {
    std::ostringstream text;
    text << "{\"context_depth\": " << contexts.size() << ", \"retained\": " << retained << ", \"modules\": " << modules.size() << ", \"streams\": " << streams.size()
         << ", \"events\": " << events.size() << ", \"graphs\": " << graphs.size() << ", \"executables\": " << executables.size()
         << ", \"allocations\": " << live_allocations() << ", \"pinned\": " << pinned.size() << "}";
    return text.str();
}

/* A process of its own is configured by TW_DOUBLE, and leaves its calls, state and fault in the file that TW_DOUBLE_REPORT names. */
struct Process {
    Process() {
        const char *text = getenv("TW_DOUBLE");
        if (text && !configure(text)) fprintf(stderr, "TW_DOUBLE: cannot read %s\n", text), abort();
    }
    ~Process() {
        const char *path = getenv("TW_DOUBLE_REPORT");
        if (!path) return;
        std::ofstream file(path);
        file << state() << "\n" << report << "\n";
        for (auto &call : calls) file << call << "\n";
    }
} process;

} // namespace twd::driver

/* The runtime's own view: a launch of clusters of blocks of warps of threads, and everything that can hold a thread up. */
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "../include/double.h"
#include "fiber.h"
#include "tensor_map.h"

namespace twd {

struct Block;
struct Cluster;
struct Launch;

/* ---- How a launch is made hard ------------------------------------------------------------------------------------- */

enum class Order { Forward, Backward, Random };  /* of lanes, warps, blocks */
enum class Landing { Early, Late, Random };      /* of asynchronous copies and products */
struct Modes {
    Order order = Order::Forward;
    Landing landing = Landing::Late;
    unsigned seed = 1;
    unsigned resident = 2; /* clusters of a launch that run beside each other; 0: another number each time one is admitted */
    unsigned char fill = 0xff; /* bytes of memory that nobody has written: NaN in every float format, or large numbers in all */
    unsigned launched = 0; /* kernels since the modes were set: what is random does not depend on what the process ran before */
};
extern Modes modes;
unsigned random_below(unsigned n);

/* ---- Happens-before ------------------------------------------------------------------------------------------------ */

/* Clocks of all actors of a cluster (its threads, then the agents that carry out asynchronous copies), as somebody knows them.
 * Shared and never changed: after a barrier all threads point to the same one. Null: nothing is known. */
using Clocks = std::shared_ptr<const std::vector<uint32_t>>;
/* The same of other clusters of the launch, by serial number: what somebody has acquired, or met one who has. */
using Others = std::shared_ptr<const std::map<uint32_t, Clocks>>;
constexpr unsigned AGENTS = 96, WARPGROUP_AGENTS = 32; /* of mbarriers first, of warpgroups last */
constexpr uint32_t UNDER_WAY = ~0u; /* the clock of an access that is not complete */

/* ---- What holds a thread up ---------------------------------------------------------------------------------------- */

enum class State : uint8_t { Ready, Polling, Warp, Barrier, Mbarrier, Cluster, Dependency, Warpgroup, Ended };
const char *name_of(State);

struct Copy { /* an asynchronous copy of one thread */
    void *to;
    const void *from;
    unsigned size, bytes, group;
};

struct Store { /* a tensor store of one thread */
    TensorMap map;
    const void *shared;
    int at[5];
    unsigned group;
    bool read, written;
    std::vector<char> source; /* the box, once it was read */
};

struct Product { /* a wgmma */
    Type type;
    void *d; /* n / 2 words of a thread: floats, or whole numbers where operands are bytes */
    int n;
    uint64_t a, b;
    bool accumulate, transpose_a, transpose_b;
    unsigned group;
    bool done = false;
    bool sparse = false; /* a has two of each four along k, by the metadata of each thread */
    unsigned metadata = 0, selector = 0;
};

struct Thread {
    Builtins builtins; /* what `current` points to */
    Fiber fiber;
    State state = State::Ready;
    unsigned linear, lane, actor;
    Block *block;
    Site at{"", 0}; /* where it waits */
    const void *waits_for = nullptr;
    unsigned parity = 0;

    std::vector<Copy> copies;
    unsigned copy_group = 0;
    std::vector<Store> stores;
    unsigned store_group = 0;
    std::vector<Product> products;
    unsigned product_group = 0;
    bool product_fence = false;
    std::vector<std::pair<void *, std::vector<uint32_t>>> accumulators; /* of products under way */
    unsigned cluster_phase = 0;
    bool cluster_arrived = false;

    uint32_t clock = 1;
    Clocks seen;
    Others others;
    Clocks fenced; /* what it knew at its last fence, of its own cluster and of others */
    Others fenced_others;
    bool has_fenced = false;
    bool dependency_waited = false;
    uint32_t proxy_fenced = 0;
};

struct Warp {
    struct Pending { unsigned mask; const void *operation; void *argument; Site at; };
    unsigned first, size;
    unsigned ready = 0, arrived = 0, ended = 0; /* one bit per lane */
    Pending pending[32];
};

struct Barrier {
    struct Member { Thread *thread; bool waits; Site at; };
    std::vector<Member> members;
    int threads = 0;
    int counted = 0, total = 0, voters = 0; /* of those who say so: now, and when it was last complete */
};

struct Mbarrier {
    unsigned count, pending, agent;
    long bytes = 0;
    unsigned phase = 0;
    bool fenced = false;
    Thread *by;
    std::vector<uint32_t> arriving; /* clocks of those who have arrived in this phase */
    Clocks done;                    /* clocks of the last phase */
};

struct Block {
    uint3 index;
    unsigned rank;
    Cluster *cluster;
    Launch *launch;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    unsigned ready_warps = 0, live;
    Barrier barriers[16];
    std::map<uint64_t *, Mbarrier> mbarriers;
    unsigned char *shared; /* its dynamic shared memory, in the pool */
    unsigned slot;
    std::vector<unsigned char> statics;
    std::vector<std::vector<Thread *>> warpgroups; /* those who wait in a warpgroup's rendezvous */
};

struct Cluster {
    std::vector<std::unique_ptr<Block>> blocks;
    uint32_t serial;
    unsigned live, arrived = 0, phase = 0, agents = 0;
    Clocks met; /* clocks at the last cluster barrier, and what was known of other clusters */
    Others met_others;
    std::vector<uint32_t> agent_clocks;
    std::vector<std::pair<unsigned, uint32_t>> dependency_waited; /* threads that have waited, and their clocks then */
};

struct alignas(64) Line { /* of a kernel's parameters: a tensor map is aligned to 64 bytes */
    unsigned char bytes[64];
};

struct Module;
struct Launch {
    const Kernel *kernel;
    Module *module;
    std::string name;
    uint3 grid, block, cluster;
    size_t shared;
    std::vector<std::vector<Line>> parameters;
    bool waits_for_dependency = false; /* it was started before the kernel that it depends on has ended */
    bool has_waited = false;           /* a thread of it has: it does not end before what it depends on has */
    bool lets_dependents_start = false;
    uint32_t node = 0;                 /* of the graph, for ordered_nodes */

    std::vector<void *> pointers;
    std::vector<unsigned> order;
    size_t next = 0;
    std::vector<std::unique_ptr<Cluster>> resident;
    bool done = false;
};

struct Module {
    void *library, *call; /* call: its function twd_module */
    ModuleInfo info;
    Block *owner = nullptr; /* whose static shared variables are in place */
    const char *begin = nullptr, *end = nullptr; /* where it is mapped */
};

struct Transfer { /* something asynchronous under way */
    Cluster *cluster; /* into whose shared memory */
    bool bulk;
    std::function<void()> land;
};

/* ---- The engine ---------------------------------------------------------------------------------------------------- */

struct Fault { /* thrown to the driver, on the process's own stack */
    std::string kind, text;
};

struct Engine {
    Fiber main;
    Thread *running = nullptr;
    std::vector<Block *> blocks; /* all that are resident, of all launches */
    std::vector<Launch *> launches;
    std::vector<Transfer> transfers;
    std::unique_ptr<Fault> fault;
    bool checked = false;
    unsigned polling = 0, rounds = 0;
    uint32_t serial = 0;

    void start(Launch &);
    bool go_on();             /* for a turn; false when nobody can */
    void finish(Launch &);    /* until it is done, or throws Fault */
    bool has_room() const;    /* for launches that need not start yet */
    void stand_still(const Launch &); /* throws Fault */
    void dependency_met(Launch &);
    void abandon();           /* after a Fault */
};
extern Engine engine;

/* While it lives, a signal in a kernel (a wild pointer, a misaligned vector access, a division by zero) is a fault of the launch. */
struct SignalsAreFaults {
    SignalsAreFaults();
    ~SignalsAreFaults();
};

Thread &self();
/* The running thread waits in `state`; returns when somebody has woken it. */
void wait_in(State state, Site at);
void wake(Thread &);
void progress();
void may_yield(); /* in a random order, lets somebody else run */
/* Waits for all lanes of `mask`; the last one calls `run` with what each lane brought. `run` is also what lanes must agree on. */
void rendezvous(unsigned mask, void *argument, Site at, void (*run)(void **arguments, unsigned lanes));
void whole_warp(const char *what, Site at);
void land_one();
void bind_statics(Block *);
void end_copies(Thread &); /* of a thread that ends */
void new_counters();

/* ---- Memory -------------------------------------------------------------------------------------------------------- */

enum class Access : uint8_t { Read, Write, Atomic };
constexpr size_t SLOT_BYTES = 256 << 10; /* of the pool of dynamic shared memory */
constexpr size_t MOST_SHARED = 227 << 10;

unsigned char *take_shared(size_t bytes, unsigned &slot);
void give_shared(unsigned slot);
/* The block of the current launch in whose shared memory the bytes lie, or null. `offset` counts dynamic memory from 0, static
 * variables from SLOT_BYTES. Faults where the range leaves the block's memory. */
Block *shared_owner(const void *address, size_t bytes, size_t &offset);
Block &own_shared(const void *address, size_t bytes, unsigned alignment, const char *what);
void global_range(const void *address, size_t bytes, unsigned alignment, const char *what);

uint64_t allocate(size_t bytes);
bool deallocate(uint64_t address, bool &known);
bool allocated(uint64_t address, size_t bytes);
size_t live_allocations();
void forget_freed();

/* A happens-before check of one access by the running thread; nothing in modules without checks. `agent` and `under_way` as of an
 * asynchronous access; `complete` gives it its clock. */
void check(const void *address, size_t bytes, Access, const void *program_counter = nullptr);
void check_async(const void *address, size_t bytes, Access, unsigned actor, bool bulk);
void complete(Block &, const void *address, size_t bytes, Access, unsigned actor, uint32_t clock);
/* The running thread is the last of its block to end: whatever other blocks of the cluster did in its shared memory must be over. */
void check_end(const Block &);
void check_node(uint64_t address, size_t bytes, Access, uint32_t node); /* a copy of the graph or of the host */

/* Everything before is ordered before everything after: a new operation of the host. */
void new_operation();
/* Within one operation, the graph's nodes: bit i of [n] says that n comes after i, when it starts and when it has waited for what it
 * depends on. */
using Ancestors = std::vector<std::vector<bool>>;
void set_ancestors(Ancestors at_start, Ancestors waited);
void set_waited(uint32_t node, std::vector<bool> ancestors);

/* A thread has ended: whoever waits for those of its warp, block or cluster that still run may go on. */
void released_by_end(Thread &);

Clocks join(const std::vector<Thread *> &);
Others join_others(const std::vector<Thread *> &);
Clocks merged(const Clocks &, const Clocks &);
void acquire(Thread &, const Clocks &);
void acquire_others(Thread &, const Others &);
void tick(Thread &);
unsigned actors_of(const Cluster &);
std::vector<uint32_t> knowledge(const Thread &);
void merge(std::vector<uint32_t> &into, const std::vector<uint32_t> &from);

std::string describe(const void *address);

} // namespace twd

/* Scheduling: who runs next, what wakes whom, and what is a deadlock. */
#include "engine.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>

namespace twd {

const Builtins *current;
Modes modes;
Engine engine;

namespace {

constexpr size_t MOST_THREADS = 16000, ROOMY = 6000; /* at once, of all launches; few enough for another launch to begin early */
constexpr unsigned MOST_RESIDENT = 16; /* clusters, where any number is */
constexpr unsigned MOST_ROUNDS = 2000; /* of polling in which nothing that could be polled has changed: a deadlock */
uint64_t random_state = 1;

uint3 place(unsigned linear, uint3 extent) { return {linear % extent.x, linear / extent.x % extent.y, linear / (extent.x * extent.y)}; }
unsigned volume(uint3 e) { return e.x * e.y * e.z; }

void set_ready(Thread &t) {
    t.state = State::Ready;
    Warp &w = t.block->warps[t.linear / 32];
    w.ready |= 1u << t.lane;
    t.block->ready_warps |= 1u << t.linear / 32;
}

void set_waiting(Thread &t, State state) {
    t.state = state;
    Warp &w = t.block->warps[t.linear / 32];
    w.ready &= ~(1u << t.lane);
    if (!w.ready) t.block->ready_warps &= ~(1u << t.linear / 32);
}

/* Bits of `set` from `first` on come before those below it. */
int next_bit(unsigned set, unsigned first) {
    unsigned later = first < 32 ? set & (~0u << first) : 0;
    return later ? __builtin_ctz(later) : set ? __builtin_ctz(set) : -1;
}
int previous_bit(unsigned set, int first) {
    unsigned earlier = first >= 0 ? set & (first >= 31 ? ~0u : (2u << first) - 1) : 0;
    return earlier ? 31 - __builtin_clz(earlier) : set ? 31 - __builtin_clz(set) : -1;
}
int random_bit(unsigned set) {
    unsigned skip = random_below((unsigned)__builtin_popcount(set));
    while (skip--) set &= set - 1;
    return __builtin_ctz(set);
}

void wake_polling() {
    for (Block *b : engine.blocks)
        for (Thread &t : b->threads)
            if (t.state == State::Polling) set_ready(t);
    engine.polling = 0;
}

/* Who runs next: another lane of the same warp if possible, then another warp of the block, then another block. */
Thread *pick() {
    auto &blocks = engine.blocks;
    if (blocks.empty()) return nullptr;
    if (modes.order == Order::Random) {
        if (modes.landing == Landing::Random && !engine.transfers.empty() && random_below(8) == 0) land_one();
        if (engine.polling && random_below(16) == 0) wake_polling();
        unsigned first = random_below((unsigned)blocks.size());
        for (size_t i = 0; i < blocks.size(); i++) {
            Block &b = *blocks[(first + i) % blocks.size()];
            if (!b.ready_warps) continue;
            Warp &w = b.warps[random_bit(b.ready_warps)];
            return &b.threads[w.first + random_bit(w.ready)];
        }
        return nullptr;
    }
    const bool forward = modes.order == Order::Forward;
    size_t at = forward ? 0 : blocks.size() - 1;
    if (Thread *t = engine.running) {
        for (size_t i = 0; i < blocks.size(); i++)
            if (blocks[i] == t->block) at = i;
        Block &b = *blocks[at];
        if (&b == t->block && b.ready_warps) {
            Warp &w = b.warps[t->linear / 32];
            if (w.ready) return &b.threads[w.first + (forward ? next_bit(w.ready, t->lane + 1) : previous_bit(w.ready, (int)t->lane - 1))];
            int next = forward ? next_bit(b.ready_warps, t->linear / 32 + 1) : previous_bit(b.ready_warps, (int)(t->linear / 32) - 1);
            Warp &other = b.warps[next];
            return &b.threads[other.first + (forward ? next_bit(other.ready, 0) : previous_bit(other.ready, 31))];
        }
    }
    for (size_t i = 0; i < blocks.size(); i++) {
        Block &b = *blocks[forward ? (at + i) % blocks.size() : (at + blocks.size() - i) % blocks.size()];
        if (!b.ready_warps) continue;
        Warp &w = b.warps[forward ? next_bit(b.ready_warps, 0) : previous_bit(b.ready_warps, 31)];
        return &b.threads[w.first + (forward ? next_bit(w.ready, 0) : previous_bit(w.ready, 31))];
    }
    return nullptr;
}

void go_on_with(Thread *next) {
    Thread *from = engine.running;
    if (next == from) return;
    engine.running = next;
    if (next) {
        bind_statics(next->block);
        current = &next->builtins;
    }
    switch_fiber(from ? from->fiber : engine.main, next ? next->fiber : engine.main);
}

/* Nobody is ready: let a copy land or those who poll look again. False when nothing can change any more. */
bool idle() {
    if (!engine.transfers.empty()) {
        land_one();
        return true;
    }
    if (engine.polling) {
        if (engine.rounds++ == MOST_ROUNDS) return false;
        wake_polling();
        return true;
    }
    return false;
}

std::string standstill() {
    std::map<std::string, std::pair<int, std::string>> groups;
    for (Block *b : engine.blocks)
        for (Thread &t : b->threads) {
            if (t.state == State::Ended) continue;
            char line[300], who[80];
            snprintf(line, sizeof line, "wait in %s at %s:%d", name_of(t.state), t.at.file, t.at.line);
            snprintf(who, sizeof who, "block (%u, %u, %u) thread %u", b->index.x, b->index.y, b->index.z, t.linear);
            auto &group = groups[line];
            if (group.first++ == 0) group.second = who;
        }
    std::string text = "nobody can go on:";
    for (auto &[line, group] : groups) text += "\n  " + std::to_string(group.first) + " threads, first " + group.second + ", " + line;
    return text;
}

void run_kernel() {
    Launch &launch = *self().block->launch;
    launch.kernel->call(launch.pointers.data());
    Thread &t = self();
    end_copies(t);
    Block &b = *t.block;
    Warp &w = b.warps[t.linear / 32];
    if (b.live == 1) check_end(b);
    set_waiting(t, State::Ended);
    w.ended |= 1u << t.lane;
    b.live--, b.cluster->live--;
    progress();
    released_by_end(t);
    go_on_with(b.cluster->live ? pick() : nullptr);
}

size_t threads_at_once() {
    size_t count = 0;
    for (const Block *b : engine.blocks) count += b->threads.size();
    return count;
}

void admit(Launch &launch) {
    size_t ahead = 0;
    if (!launch.waits_for_dependency) ahead = engine.blocks.size();
    unsigned per_cluster = volume(launch.cluster), threads = volume(launch.block);
    const unsigned most = modes.resident ? modes.resident : 1 + random_below(MOST_RESIDENT);
    while (launch.next < launch.order.size() && launch.resident.size() < most) {
        if (!launch.resident.empty() && threads_at_once() + per_cluster * threads > MOST_THREADS) break;
        uint3 clusters = {launch.grid.x / launch.cluster.x, launch.grid.y / launch.cluster.y, launch.grid.z / launch.cluster.z};
        uint3 base = place(launch.order[launch.next++], clusters);
        auto cluster = std::make_unique<Cluster>();
        cluster->serial = ++engine.serial;
        cluster->live = per_cluster * threads;
        cluster->agent_clocks.assign(AGENTS, 0);
        for (unsigned rank = 0; rank < per_cluster; rank++) {
            auto block = std::make_unique<Block>();
            Block &b = *block;
            uint3 within = place(rank, launch.cluster);
            b.index = {base.x * launch.cluster.x + within.x, base.y * launch.cluster.y + within.y, base.z * launch.cluster.z + within.z};
            b.rank = rank, b.cluster = cluster.get(), b.launch = &launch, b.live = threads;
            b.shared = take_shared(launch.shared, b.slot);
            b.statics.assign((size_t)(launch.module->info.shared_end - launch.module->info.shared_begin), modes.fill);
            b.warpgroups.resize((threads + 127) / 128);
            b.threads.resize(threads);
            b.warps.resize((threads + 31) / 32);
            for (unsigned i = 0; i < b.warps.size(); i++) b.warps[i].first = 32 * i, b.warps[i].size = std::min(32u, threads - 32 * i);
            for (unsigned i = 0; i < threads; i++) {
                Thread &t = b.threads[i];
                t.builtins = {place(i, launch.block), b.index, launch.block, launch.grid};
                t.linear = i, t.lane = i % 32, t.actor = rank * threads + i, t.block = &b;
                t.fiber.prepare(run_kernel);
                set_ready(t);
            }
            /* in order: a launch that begins early runs before the ones under way go on */
            engine.blocks.insert(modes.order == Order::Forward ? engine.blocks.begin() + (long)ahead++ : engine.blocks.end(), &b);
            cluster->blocks.push_back(std::move(block));
        }
        launch.resident.push_back(std::move(cluster));
    }
}

void drop(Block *b) {
    for (Thread &t : b->threads) t.fiber.release();
    give_shared(b->slot);
    if (b->launch->module->owner == b) b->launch->module->owner = nullptr;
    engine.blocks.erase(std::find(engine.blocks.begin(), engine.blocks.end(), b));
}

void lose_transfers(Cluster *ended) {
    auto &all = engine.transfers;
    for (const Transfer &t : all)
        if (t.cluster == ended && t.bulk) throw Fault{"protocol", "a block has ended while a bulk copy into its shared memory is under way"};
    all.erase(std::remove_if(all.begin(), all.end(), [=](const Transfer &t) { return t.cluster == ended; }), all.end());
}

void retire() {
    for (Launch *launch : engine.launches) {
        for (size_t i = 0; i < launch->resident.size();) {
            if (launch->resident[i]->live) {
                i++;
                continue;
            }
            lose_transfers(launch->resident[i].get());
            for (auto &block : launch->resident[i]->blocks) drop(block.get());
            launch->resident.erase(launch->resident.begin() + (long)i);
        }
        admit(*launch);
        if (launch->resident.empty()) launch->done = true;
    }
    auto &all = engine.launches;
    all.erase(std::remove_if(all.begin(), all.end(), [](Launch *l) { return l->done; }), all.end());
}

/* One turn on the process's own stack. False when nobody can go on. */
bool turn() {
    engine.running = nullptr;
    if (Thread *next = pick())
        go_on_with(next);
    else if (!idle())
        return false;
    if (engine.fault) throw *engine.fault;
    retire();
    return true;
}

} // namespace

unsigned random_below(unsigned n) {
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return n ? (unsigned)((random_state >> 33) % n) : 0;
}

const char *name_of(State state) {
    switch (state) {
    case State::Ready: return "no barrier";
    case State::Polling: return "a loop on a counter";
    case State::Warp: return "a collective of the warp";
    case State::Barrier: return "a barrier of the block";
    case State::Mbarrier: return "an mbarrier";
    case State::Cluster: return "a barrier of the cluster";
    case State::Dependency: return "griddepcontrol.wait";
    case State::Warpgroup: return "a collective of the warpgroup";
    case State::Ended: return "nothing";
    }
    return "";
}

Thread &self() { return *engine.running; }

void fault(const char *kind, const char *format, ...) {
    char text[4000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    std::string prefix;
    if (Thread *t = engine.running) {
        Block &b = *t->block;
        prefix = b.launch->name + " block (" + std::to_string(b.index.x) + ", " + std::to_string(b.index.y) + ", " + std::to_string(b.index.z) +
                 ") thread " + std::to_string(t->linear) + ": ";
    }
    Fault found{kind, prefix + text};
    if (!engine.running) throw found;
    engine.fault = std::make_unique<Fault>(found);
    for (;;) go_on_with(nullptr);
}

void progress() { engine.rounds = 0; }

void wait_in(State state, Site at) {
    Thread &t = self();
    t.at = at;
    set_waiting(t, state);
    if (state == State::Polling) engine.polling++;
    go_on_with(pick());
}

void wake(Thread &t) { set_ready(t); }

void may_yield() {
    if (modes.order == Order::Random && random_below(2)) go_on_with(pick());
}

/* The kernels that depend on this one may start once every block has said so or ended. What blocks do before they say so nobody can
 * tell, since it is not seen by others before griddepcontrol.wait: so the first one counts for all. */
void launch_dependents() {
    Launch &launch = *self().block->launch;
    if (launch.lets_dependents_start) return;
    launch.lets_dependents_start = true;
    go_on_with(nullptr); /* the driver starts them, then this thread goes on */
}

void sleep() { wait_in(State::Polling, {"__nanosleep", 0}); }

/* ---- Launches ------------------------------------------------------------------------------------------------------ */

/* SplitMix64's finalizer: neighbouring states of the generator would make neighbouring choices. */
static uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

void Engine::start(Launch &launch) {
    random_state = mixed((uint64_t)modes.seed << 32 | modes.launched++);
    launch.pointers.clear();
    for (auto &parameter : launch.parameters) launch.pointers.push_back(parameter.data());
    unsigned count = volume(launch.grid) / volume(launch.cluster);
    launch.order.resize(count);
    for (unsigned i = 0; i < count; i++) launch.order[i] = modes.order == Order::Backward ? count - 1 - i : i;
    if (modes.order == Order::Random)
        for (unsigned i = count; i > 1; i--) std::swap(launch.order[i - 1], launch.order[random_below(i)]);
    checked = launch.module->info.checked;
    rounds = 0;
    launches.push_back(&launch);
    admit(launch);
}

bool Engine::go_on() { return turn(); }

bool Engine::has_room() const { return threads_at_once() <= ROOMY; }

void Engine::stand_still(const Launch &launch) { throw Fault{"deadlock", launch.name + ": " + standstill()}; }

void Engine::finish(Launch &launch) {
    while (!launch.done)
        if (!turn()) stand_still(launch);
}

void Engine::abandon() {
    while (!blocks.empty()) drop(blocks.back());
    for (Launch *launch : launches) launch->resident.clear(), launch->done = true;
    launches.clear();
    transfers.clear();
    fault.reset();
    running = nullptr;
    polling = 0;
}

/* Static shared variables have one address in all blocks: they are exchanged when another block goes on. */
void bind_statics(Block *b) {
    Module &m = *b->launch->module;
    if (m.owner == b || b->statics.empty()) return;
    if (m.owner) memcpy(m.owner->statics.data(), m.info.shared_begin, m.owner->statics.size());
    memcpy(m.info.shared_begin, b->statics.data(), b->statics.size());
    m.owner = b;
}

} // namespace twd

/* Where threads meet: collectives of a warp, barriers of a block and of a cluster, atomics and counters between blocks. */
#include "engine.h"

#include <algorithm>
#include <cstring>

namespace twd {

/* ---- Collectives of a warp ----------------------------------------------------------------------------------------- */

namespace {

/* Runs the collective that `mask` names, if all its lanes have come. */
bool complete_collective(Block &b, Warp &w, unsigned mask, unsigned lane) {
    const Warp::Pending own = w.pending[lane];
    unsigned wanted = mask & ~w.ended;
    if ((w.arrived & wanted) != wanted) return false;
    for (unsigned i = 0; i < 32; i++) {
        if (!(wanted >> i & 1)) continue;
        const Warp::Pending &p = w.pending[i];
        if (p.operation != own.operation || p.mask != mask)
            fault("divergence", "lanes %u and %u of a warp meet in different collectives: %s:%d (mask %08x) and %s:%d (mask %08x)", lane, i,
                  own.at.file, own.at.line, mask, p.at.file, p.at.line, p.mask);
    }
    void *arguments[32] = {};
    for (unsigned i = 0; i < 32; i++)
        if (wanted >> i & 1) arguments[i] = w.pending[i].argument;
    w.arrived &= ~wanted;
    auto run = (void (*)(void **, unsigned))own.operation;
    run(arguments, wanted);
    for (unsigned i = 0; i < 32; i++)
        if (wanted >> i & 1 && b.threads[w.first + i].state == State::Warp) wake(b.threads[w.first + i]);
    return true;
}

} // namespace

void rendezvous(unsigned mask, void *argument, Site at, void (*run)(void **, unsigned)) {
    Thread &t = self();
    Warp &w = t.block->warps[t.linear / 32];
    if (w.size < 32) mask &= (1u << w.size) - 1;
    if (!(mask >> t.lane & 1)) fault("divergence", "%s:%d: lane %u calls a collective whose mask %08x does not name it", at.file, at.line, t.lane, mask);
    w.pending[t.lane] = {mask, (const void *)run, argument, at};
    w.arrived |= 1u << t.lane;
    t.at = at;
    if (!complete_collective(*t.block, w, mask, t.lane)) wait_in(State::Warp, at);
}

/* An instruction marked .aligned: every lane of the warp carries out the same one, at the same place. */
void whole_warp(const char *what, Site at) {
    Thread &t = self();
    Warp &w = t.block->warps[t.linear / 32];
    if (w.size != 32) fault("divergence", "%s:%d: %s in a warp of %u lanes", at.file, at.line, what, w.size);
    if (w.ended) fault("divergence", "%s:%d: %s in a warp of which lanes %08x have ended", at.file, at.line, what, w.ended);
}

void warp_barrier(unsigned mask, Site at) {
    rendezvous(mask, &self(), at, [](void **arguments, unsigned lanes) {
        if (!engine.checked) return;
        std::vector<Thread *> threads;
        for (int i = 0; i < 32; i++)
            if (lanes >> i & 1) threads.push_back((Thread *)arguments[i]);
        Clocks met = join(threads);
        Others others = join_others(threads);
        for (Thread *t : threads) t->seen = met, t->others = others, tick(*t);
    });
}

int lane() { return (int)self().lane; }

unsigned active_mask() {
    Thread &t = self();
    Warp &w = t.block->warps[t.linear / 32];
    return modes.order == Order::Random ? 1u << t.lane : (w.ready | 1u << t.lane) & ~w.ended; /* any set that has this lane is right */
}

uint64_t exchange(unsigned mask, uint64_t value, int source, Site at) {
    struct Lane { uint64_t value, result; int source; Site at; } own{value, 0, source & 31, at};
    rendezvous(mask, &own, at, [](void **arguments, unsigned lanes) {
        for (int i = 0; i < 32; i++) {
            if (!(lanes >> i & 1)) continue;
            Lane &l = *(Lane *)arguments[i];
            if (!(lanes >> l.source & 1)) fault("divergence", "%s:%d: lane %d shuffles from lane %d, which takes no part", l.at.file, l.at.line, i, l.source);
            l.result = ((Lane *)arguments[l.source])->value;
        }
    });
    return own.result;
}

uint64_t vote(unsigned mask, Vote kind, uint64_t value, Site at) {
    struct Lane { Vote kind; uint64_t value, result; } own{kind, value, 0};
    rendezvous(mask, &own, at, [](void **arguments, unsigned lanes) {
        unsigned first = (unsigned)__builtin_ctz(lanes), ballot = 0;
        Vote kind = ((Lane *)arguments[first])->kind;
        uint64_t all = ((Lane *)arguments[first])->value;
        for (unsigned i = 0; i < 32; i++) {
            if (!(lanes >> i & 1)) continue;
            Lane &l = *(Lane *)arguments[i];
            if (l.kind != kind) fault("divergence", "lanes %u and %u of a warp meet in different votes", first, i);
            if (l.value) ballot |= 1u << i;
            if (i == first) continue;
            int32_t x = (int32_t)all, y = (int32_t)l.value;
            switch (kind) {
            case Vote::Add: case Vote::AddSigned: all = (uint32_t)(all + l.value); break;
            case Vote::Min: all = std::min(all, l.value); break;
            case Vote::Max: all = std::max(all, l.value); break;
            case Vote::MinSigned: all = (uint32_t)std::min(x, y); break;
            case Vote::MaxSigned: all = (uint32_t)std::max(x, y); break;
            case Vote::And: all &= l.value; break;
            case Vote::Or: all |= l.value; break;
            case Vote::Xor: all ^= l.value; break;
            default: break;
            }
        }
        for (unsigned i = 0; i < 32; i++) {
            if (!(lanes >> i & 1)) continue;
            Lane &l = *(Lane *)arguments[i];
            unsigned same = 0;
            for (unsigned j = 0; j < 32; j++)
                if (lanes >> j & 1 && ((Lane *)arguments[j])->value == l.value) same |= 1u << j;
            switch (kind) {
            case Vote::Any: l.result = ballot != 0; break;
            case Vote::All: l.result = ballot == lanes; break;
            case Vote::Ballot: l.result = ballot; break;
            case Vote::MatchAny: l.result = same; break;
            case Vote::MatchAll: l.result = same == lanes ? lanes : 0; break;
            default: l.result = all; break;
            }
        }
    });
    return own.result;
}

/* ---- Barriers of a block and of a cluster -------------------------------------------------------------------------- */

namespace {

bool release(Block &b, int id) {
    Barrier &barrier = b.barriers[id];
    size_t wanted = barrier.threads ? (size_t)barrier.threads : b.live;
    if (barrier.members.empty() || barrier.members.size() < wanted) return false;
    std::vector<Barrier::Member> members;
    members.swap(barrier.members);
    for (auto &m : members) {
        const Barrier::Member &first = members[0];
        if (id == 0 && (m.at.line != first.at.line || strcmp(m.at.file, first.at.file)))
            fault("divergence", "threads %u and %u of a block meet in different barriers: %s:%d and %s:%d", first.thread->linear, m.thread->linear,
                  first.at.file, first.at.line, m.at.file, m.at.line);
        if (id == 0) continue;
        Warp &w = b.warps[m.thread->linear / 32];
        unsigned lanes = w.ended;
        for (auto &other : members)
            if (other.thread->linear / 32 == m.thread->linear / 32) lanes |= 1u << other.thread->lane;
        if (~lanes) fault("divergence", "%s:%d: lanes %08x of warp %u take no part in barrier %d", m.at.file, m.at.line, ~lanes, m.thread->linear / 32, id);
    }
    if (engine.checked) {
        std::vector<Thread *> threads;
        for (auto &m : members) threads.push_back(m.thread);
        Clocks met = join(threads);
        Others others = join_others(threads);
        for (auto &m : members)
            if (m.waits) m.thread->seen = met, m.thread->others = others;
        for (auto &m : members) tick(*m.thread);
    }
    barrier.total = barrier.counted, barrier.voters = (int)members.size(), barrier.counted = 0;
    for (auto &m : members)
        if (m.thread->state == State::Barrier && m.waits) wake(*m.thread);
    return true;
}

bool cluster_meets(Cluster &c) {
    if (!c.arrived || c.arrived < c.live) return false;
    c.arrived = 0, c.phase++;
    if (engine.checked) {
        std::vector<Thread *> threads;
        for (auto &b : c.blocks)
            for (Thread &t : b->threads) threads.push_back(&t);
        c.met = join(threads), c.met_others = join_others(threads);
        for (Thread *t : threads) tick(*t);
    }
    for (auto &b : c.blocks)
        for (Thread &t : b->threads)
            if (t.state == State::Cluster) wake(t);
    return true;
}

} // namespace

void barrier(int id, int threads, bool waits, Site at) {
    Thread &t = self();
    Block &b = *t.block;
    if (id < 0 || id > 15) fault("limit", "%s:%d: barrier %d of 16", at.file, at.line, id);
    if (threads % 32) fault("limit", "%s:%d: barrier %d for %d threads, which are not whole warps", at.file, at.line, id, threads);
    Barrier &own = b.barriers[id];
    if (!own.members.empty() && own.threads != threads)
        fault("divergence", "%s:%d: barrier %d for %d threads, while others expect %d", at.file, at.line, id, threads, own.threads);
    for (auto &m : own.members)
        if (m.thread == &t) fault("divergence", "%s:%d: thread comes to barrier %d again before it is complete", at.file, at.line, id);
    own.threads = threads;
    own.members.push_back({&t, waits, at});
    t.at = at;
    if (!release(b, id) && waits) wait_in(State::Barrier, at);
}

int barrier_count(int id, int threads, int operation, int predicate, Site at) {
    Barrier &own = self().block->barriers[id];
    own.counted += predicate != 0;
    barrier(id, threads, true, at);
    return operation == 0 ? own.total : operation == 1 ? own.total == own.voters : own.total != 0;
}

/* An ended thread takes no part in barriers and collectives any more: others may have waited for it alone. */
void released_by_end(Thread &t) {
    Block &b = *t.block;
    Warp &w = b.warps[t.linear / 32];
    for (unsigned i = 0; i < 32; i++)
        if (w.arrived >> i & 1 && w.pending[i].mask >> t.lane & 1) complete_collective(b, w, w.pending[i].mask, i);
    if (b.live && b.barriers[0].threads == 0) release(b, 0);
    cluster_meets(*b.cluster);
}

unsigned cluster_rank() { return self().block->rank; }
unsigned cluster_size() { return (unsigned)self().block->cluster->blocks.size(); }

void cluster_arrive(Site at) {
    Thread &t = self();
    Cluster &c = *t.block->cluster;
    if (t.cluster_arrived) fault("divergence", "%s:%d: thread arrives at the cluster's barrier twice", at.file, at.line);
    t.cluster_arrived = true;
    t.cluster_phase = c.phase;
    t.at = at;
    c.arrived++;
    cluster_meets(c);
}

void cluster_wait(Site at) {
    Thread &t = self();
    Cluster &c = *t.block->cluster;
    if (!t.cluster_arrived) fault("divergence", "%s:%d: thread waits at the cluster's barrier without having arrived", at.file, at.line);
    while (c.phase == t.cluster_phase) wait_in(State::Cluster, at);
    t.cluster_arrived = false;
    if (engine.checked) acquire(t, c.met), acquire_others(t, c.met_others);
}

void Engine::dependency_met(Launch &launch) {
    launch.waits_for_dependency = false;
    for (auto &cluster : launch.resident)
        for (auto &b : cluster->blocks)
            for (Thread &t : b->threads)
                if (t.state == State::Dependency) wake(t);
}

void dependency_wait(Site at) {
    Thread &t = self();
    Launch &launch = *t.block->launch;
    launch.has_waited = true;
    while (launch.waits_for_dependency) wait_in(State::Dependency, at);
    if (t.dependency_waited) return;
    t.dependency_waited = true;
    if (!engine.checked) return;
    tick(t);
    t.block->cluster->dependency_waited.push_back({t.actor, t.clock});
}

/* ---- Atomics and counters ------------------------------------------------------------------------------------------ */

namespace {

/* What was released at a global address: of each cluster, by its serial number, what those who released knew of it. */
std::map<const void *, std::map<uint32_t, Clocks>> published;

void release_at(const void *address, const Clocks &knows, const Others &others) {
    if (!engine.checked) return;
    auto &all = published[address];
    all[self().block->cluster->serial] = knows;
    if (others)
        for (auto &[serial, clocks] : *others) all[serial] = merged(all[serial], clocks);
}

void acquire_at(const void *address) {
    if (!engine.checked) return;
    Thread &t = self();
    auto found = published.find(address);
    if (found == published.end()) return;
    auto others = found->second;
    if (auto own = others.find(t.block->cluster->serial); own != others.end()) {
        acquire(t, own->second);
        others.erase(own);
    }
    acquire_others(t, std::make_shared<const std::map<uint32_t, Clocks>>(std::move(others)));
}

bool is_shared(const void *address, size_t bytes) {
    size_t offset;
    return shared_owner(address, bytes, offset) != nullptr;
}

Clocks knowledge_of(Thread &t) { return std::make_shared<const std::vector<uint32_t>>(knowledge(t)); }

} // namespace

void new_counters() { published.clear(); }

void fence() {
    Thread &t = self();
    if (!engine.checked) return;
    t.fenced = knowledge_of(t), t.fenced_others = t.others;
    t.has_fenced = true;
    tick(t);
}

uint64_t atomic(void *address, int bytes, uint64_t (*update)(uint64_t, uint64_t, uint64_t), uint64_t operand, uint64_t compare, Site at) {
    if ((uintptr_t)address % (unsigned)bytes) fault("misaligned", "%s:%d: atomic on %s", at.file, at.line, describe(address).c_str());
    self().at = at;
    may_yield();
    const bool shared = is_shared(address, (size_t)bytes);
    if (!shared) global_range(address, (size_t)bytes, (unsigned)bytes, "atomic");
    check(address, (size_t)bytes, Access::Atomic, __builtin_return_address(0));
    uint64_t before = 0;
    memcpy(&before, address, (size_t)bytes);
    uint64_t after = update(before, operand, compare);
    memcpy(address, &after, (size_t)bytes);
    if (!shared) {
        /* relaxed: orders what a fence came before it, and, as every use of such a counter needs a fence after it, acquires */
        if (self().has_fenced) release_at(address, self().fenced, self().fenced_others);
        acquire_at(address);
    }
    progress();
    may_yield();
    return before;
}

unsigned load_relaxed(const unsigned *global, Site at) {
    global_range(global, 4, 4, "load.relaxed");
    wait_in(State::Polling, at);
    check(global, 4, Access::Atomic);
    return *global;
}

unsigned load_acquire(const unsigned *global, Site at) {
    global_range(global, 4, 4, "load.acquire");
    wait_in(State::Polling, at);
    check(global, 4, Access::Atomic);
    acquire_at(global);
    return *global;
}

void store_release(unsigned *global, unsigned value, Site at) {
    self().at = at;
    may_yield();
    global_range(global, 4, 4, "store.release");
    check(global, 4, Access::Atomic);
    if (engine.checked) release_at(global, knowledge_of(self()), self().others), tick(self());
    *global = value;
    progress();
}

namespace {

/* Adds, which releases what the thread knows, and acquires what others released if it `acquires`. */
unsigned add(unsigned *global, unsigned value, bool acquires, Site at) {
    self().at = at;
    may_yield();
    global_range(global, 4, 4, acquires ? "atom.add.release" : "red.add.release");
    check(global, 4, Access::Atomic);
    if (acquires) acquire_at(global);
    if (engine.checked) release_at(global, knowledge_of(self()), self().others), tick(self());
    unsigned before = *global;
    *global = before + value;
    progress();
    may_yield();
    return before;
}

} // namespace

unsigned add_release(unsigned *global, unsigned value, Site at) { return add(global, value, true, at); }
void count_release(unsigned *global, Site at) { add(global, 1, false, at); }

unsigned long long global_timer() {
    static unsigned long long asked = 0;
    return ++asked;
}

} // namespace twd

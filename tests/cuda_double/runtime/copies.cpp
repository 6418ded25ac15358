/* Asynchronous copies and the mbarriers that tell of them. When a copy lands is the mode's choice: at once, at the last moment at
 * which it may, or in between; until then its destination holds NaN patterns. */
#include "engine.h"
#include "tensor_map.h"

#include <algorithm>
#include <cstring>

namespace twd {

/* ---- cp.async ("Data Movement and Conversion Instructions: Non-bulk copy") ------------------------------------------ */

namespace {

void land(const Copy &c) {
    memcpy(c.to, c.from, c.bytes);
    memset((char *)c.to + c.bytes, 0, c.size - c.bytes);
}

/* All copies of groups older than the newest `pending`; with `uncommitted` those of no group too. */
void land_groups(Thread &t, unsigned pending, bool uncommitted, uint32_t clock) {
    auto over = [&](const Copy &c) { return uncommitted || c.group + pending < t.copy_group; };
    for (const Copy &c : t.copies)
        if (over(c)) {
            if (modes.landing != Landing::Early) bind_statics(t.block), land(c);
            complete(*t.block, c.to, c.size, Access::Write, t.actor, clock);
            if (c.bytes) complete(*t.block, c.from, c.bytes, Access::Read, t.actor, clock);
        }
    t.copies.erase(std::remove_if(t.copies.begin(), t.copies.end(), over), t.copies.end());
}

} // namespace

void copy_async(void *shared, const void *global, unsigned size, unsigned bytes, Site at) {
    Thread &t = self();
    t.at = at;
    if (bytes > size) fault("limit", "%s:%d: cp.async of %u bytes reads %u", at.file, at.line, size, bytes);
    own_shared(shared, size, size, "cp.async");
    if ((uintptr_t)global % size) fault("misaligned", "%s:%d: cp.async from %s", at.file, at.line, describe(global).c_str());
    if (bytes) global_range(global, bytes, size, "cp.async");
    check_async(shared, size, Access::Write, t.actor, false);
    if (bytes) check_async(global, bytes, Access::Read, t.actor, false);
    Copy copy{shared, global, size, bytes, t.copy_group};
    memset(shared, modes.fill, size);
    if (modes.landing == Landing::Early || (modes.landing == Landing::Random && random_below(2))) land(copy);
    t.copies.push_back(copy);
}

void prefetch(const void *global, unsigned bytes, unsigned thread, unsigned threads, Site at) {
    const Thread &t = self();
    if (bytes % 16) fault("limit", "%s:%d: a prefetch of %u bytes, not a multiple of 16", at.file, at.line, bytes);
    if (thread != t.linear % threads) fault("limit", "%s:%d: thread %u says that it is thread %u of a prefetch", at.file, at.line, t.linear, thread);
    global_range(global, bytes, 16, "prefetch");
}

void copy_commit() { self().copy_group++; }

void copy_wait(unsigned pending) {
    Thread &t = self();
    land_groups(t, pending, false, t.clock);
}

/* ---- mbarrier ("Parallel Synchronization and Communication Instructions: mbarrier") ---------------------------------- */

namespace {

constexpr uint64_t INITIALISED = 0x7265697272616254ull; /* what the 8 bytes hold: overwriting them is found */

Mbarrier &barrier_at(uint64_t *shared, Block &b) {
    auto found = b.mbarriers.find(shared);
    if (found == b.mbarriers.end()) fault("protocol", "%s is no initialised mbarrier", describe(shared).c_str());
    if (*shared != INITIALISED) fault("protocol", "the mbarrier at %s was overwritten", describe(shared).c_str());
    return found->second;
}

Mbarrier &own_barrier(uint64_t *shared, Site at) {
    Block &b = own_shared(shared, 8, 8, "mbarrier");
    if (&b != self().block) fault("protocol", "%s:%d: the mbarrier is another block's", at.file, at.line);
    Mbarrier &m = barrier_at(shared, b);
    check(shared, 8, Access::Atomic);
    return m;
}

void step(Block &b, uint64_t *shared, Mbarrier &m) {
    if (m.pending || m.bytes) return;
    m.phase++, m.pending = m.count;
    if (engine.checked) {
        m.done = std::make_shared<const std::vector<uint32_t>>(m.arriving);
        std::fill(m.arriving.begin(), m.arriving.end(), 0);
    }
    progress();
    for (auto &block : b.cluster->blocks)
        for (Thread &t : block->threads)
            if (t.state == State::Mbarrier && t.waits_for == shared) wake(t);
}

void arrive(Block &b, uint64_t *shared, Mbarrier &m, long bytes, Thread *t) {
    if (m.pending == 0) fault("protocol", "more than %u arrivals in a phase of the mbarrier at %s", m.count, describe(shared).c_str());
    if (engine.checked && t) merge(m.arriving, knowledge(*t)), tick(*t);
    m.pending--, m.bytes += bytes;
    step(b, shared, m);
}

/* Bytes of a bulk copy have arrived. */
void deliver(Block &b, uint64_t *shared, long bytes) {
    Mbarrier &m = barrier_at(shared, b);
    m.bytes -= bytes;
    if (engine.checked) {
        unsigned actor = actors_of(*b.cluster) - AGENTS + m.agent;
        m.arriving[actor] = std::max(m.arriving[actor], b.cluster->agent_clocks[m.agent]);
    }
    step(b, shared, m);
}

} // namespace

void mbarrier_init(uint64_t *shared, unsigned count, Site at) {
    Thread &t = self();
    t.at = at;
    if (&own_shared(shared, 8, 8, "mbarrier.init") != t.block) fault("protocol", "%s:%d: the mbarrier is another block's", at.file, at.line);
    if (count == 0 || count >= 1u << 20) fault("limit", "%s:%d: mbarrier for %u arrivals", at.file, at.line, count);
    check(shared, 8, Access::Write);
    Mbarrier m{};
    m.count = m.pending = count;
    m.by = &t;
    m.agent = t.block->cluster->agents++ % (AGENTS - WARPGROUP_AGENTS);
    m.arriving.assign(actors_of(*t.block->cluster), 0);
    t.block->mbarriers[shared] = m;
    *shared = INITIALISED;
}

void mbarrier_fence_init() {
    for (auto &[shared, m] : self().block->mbarriers)
        if (m.by == &self()) m.fenced = true;
}

void mbarrier_arrive(uint64_t *shared, unsigned bytes, Site at) {
    self().at = at;
    arrive(*self().block, shared, own_barrier(shared, at), bytes, &self());
    may_yield();
}

void mbarrier_arrive_cluster(uint64_t *shared, unsigned rank, Site at) {
    Thread &t = self();
    t.at = at;
    own_barrier(shared, at);
    Block &b = *t.block->cluster->blocks[rank < t.block->cluster->blocks.size() ? rank : 0];
    auto *remote = (uint64_t *)cluster_map(shared, rank);
    arrive(b, remote, barrier_at(remote, b), 0, &t);
    may_yield();
}

void mbarrier_arrive_copies(uint64_t *shared, Site at) {
    Thread &t = self();
    t.at = at;
    Mbarrier &m = own_barrier(shared, at);
    if (engine.checked) merge(m.arriving, knowledge(t));
    const uint32_t clock = t.clock;
    tick(t);
    auto lands = [&t, shared, clock] {
        land_groups(t, 0, true, clock);
        arrive(*t.block, shared, barrier_at(shared, *t.block), 0, nullptr);
    };
    if (modes.landing == Landing::Early)
        lands();
    else
        engine.transfers.push_back({t.block->cluster, false, lands});
}

void mbarrier_wait(uint64_t *shared, unsigned parity, Site at) {
    Thread &t = self();
    Mbarrier &m = own_barrier(shared, at);
    if (parity > 1) fault("limit", "%s:%d: parity %u", at.file, at.line, parity);
    while (m.phase % 2 == parity) {
        t.waits_for = shared;
        t.parity = parity;
        wait_in(State::Mbarrier, at);
    }
    acquire(t, m.done);
}

/* ---- Bulk copies ("cp.async.bulk", "cp.async.bulk.tensor") ----------------------------------------------------------- */

namespace {

/* The bytes of a box that lie outside of the tensor are zero; f(offset in the box, address or null, bytes). */
template <class F> void for_rows(const TensorMap &map, const int *at, F f) {
    unsigned outer[5] = {1, 1, 1, 1, 1};
    for (unsigned i = 1; i < map.rank; i++) outer[i] = map.box[i];
    size_t offset = 0;
    for (unsigned v = 0; v < outer[4]; v++)
        for (unsigned w = 0; w < outer[3]; w++)
            for (unsigned z = 0; z < outer[2]; z++)
                for (unsigned y = 0; y < outer[1]; y++) {
                    const unsigned within[5] = {0, y, z, w, v};
                    uint64_t address = map.address;
                    bool inside = true;
                    for (unsigned i = 1; i < map.rank; i++) {
                        long position = (long)at[i] + within[i];
                        inside &= position >= 0 && position < (long)map.size[i];
                        address += (uint64_t)position * map.stride[i - 1];
                    }
                    for (unsigned x = 0; x < map.box[0]; x++, offset += map.element_bytes) {
                        long position = (long)at[0] + x;
                        bool there = inside && position >= 0 && position < (long)map.size[0];
                        f(offset, there ? (char *)(address + (uint64_t)position * map.element_bytes) : nullptr, map.element_bytes);
                    }
                }
}

size_t box_bytes(const TensorMap &map) {
    size_t bytes = map.element_bytes;
    for (unsigned i = 0; i < map.rank; i++) bytes *= map.box[i];
    return bytes;
}

uint32_t swizzle_bits(const TensorMap &map) { return map.swizzle; } /* 32, 64, 128 bytes: 1, 2, 3 bits */

const TensorMap &map_at(const void *opaque, int rank, Site at) {
    const auto &map = *static_cast<const TensorMap *>(opaque);
    if ((uintptr_t)opaque % 64) fault("misaligned", "%s:%d: a tensor map is aligned to 64 bytes", at.file, at.line);
    if (map.magic != TensorMap::MAGIC) fault("protocol", "%s:%d: this is no tensor map of cuTensorMapEncodeTiled", at.file, at.line);
    if (map.rank != (unsigned)rank) fault("protocol", "%s:%d: a tensor map of rank %u used with %d coordinates", at.file, at.line, map.rank, rank);
    return map;
}

/* Where in the destination the byte at `offset` of a box lies: the pattern belongs to the address. */
char *place_of(char *shared, const Block &b, size_t offset, uint32_t bits) {
    size_t linear = (size_t)(shared - (char *)b.shared) + offset;
    return (char *)b.shared + swizzled(linear, bits);
}

void bring(Block &b, void *shared, size_t bytes, uint64_t *barrier, std::function<void()> move) {
    own_shared(shared, bytes, 16, "bulk copy");
    Mbarrier &m = barrier_at(barrier, b);
    if (!m.fenced) fault("protocol", "a bulk copy on an mbarrier without fence.mbarrier_init");
    unsigned actor = actors_of(*b.cluster) - AGENTS + m.agent;
    check_async(shared, bytes, Access::Write, actor, true);
    memset(shared, modes.fill, bytes);
    auto lands = [&b, shared, bytes, barrier, actor, move, agent = m.agent] {
        move();
        complete(b, shared, bytes, Access::Write, actor, ++b.cluster->agent_clocks[agent]);
        deliver(b, barrier, (long)bytes);
    };
    if (modes.landing == Landing::Early)
        lands();
    else
        engine.transfers.push_back({b.cluster, true, lands});
}

} // namespace

void land_one() {
    auto &all = engine.transfers;
    size_t which = modes.order == Order::Forward ? 0 : modes.order == Order::Backward ? all.size() - 1 : random_below((unsigned)all.size());
    Transfer transfer = std::move(all[which]);
    all.erase(all.begin() + (long)which);
    transfer.land();
    progress();
}

void bulk_load(void *shared, const void *global, unsigned bytes, uint64_t *barrier, Site at) {
    Block &b = *self().block;
    self().at = at;
    if (bytes % 16) fault("misaligned", "%s:%d: a bulk copy of %u bytes", at.file, at.line, bytes);
    global_range(global, bytes, 16, "bulk copy");
    check(global, bytes, Access::Read);
    own_barrier(barrier, at);
    bring(b, shared, bytes, barrier, [=] { memcpy(shared, global, bytes); });
}

void tensor_load(void *shared, const void *opaque, uint64_t *barrier, int rank, const int *at_element, unsigned blocks, Site at) {
    Block &own = *self().block;
    self().at = at;
    const TensorMap map = map_at(opaque, rank, at);
    own_shared(shared, 1, 128, "tensor load");
    own_barrier(barrier, at);
    std::vector<int> coordinates(at_element, at_element + rank);
    for_rows(map, at_element, [&](size_t, const char *from, size_t bytes) {
        if (from) global_range(from, bytes, 1, "tensor load"), check(from, bytes, Access::Read);
    });
    size_t offset;
    shared_owner(shared, 0, offset);
    if (offset >= SLOT_BYTES) fault("limit", "%s:%d: the double loads tensors to dynamic shared memory", at.file, at.line);
    Cluster &c = *own.cluster;
    if (blocks >> c.blocks.size()) fault("limit", "%s:%d: multicast to blocks %x of a cluster of %zu", at.file, at.line, blocks, c.blocks.size());
    for (unsigned r = 0; r < c.blocks.size(); r++) {
        if (blocks ? !(blocks >> r & 1) : c.blocks[r].get() != &own) continue;
        Block &b = *c.blocks[r];
        char *to = (char *)b.shared + offset;
        auto *arrival = (uint64_t *)(b.shared + ((unsigned char *)barrier - own.shared));
        bring(b, to, box_bytes(map), arrival, [=, &b] {
            for_rows(map, coordinates.data(), [&](size_t offset, const char *from, size_t bytes) {
                char *destination = place_of(to, b, offset, swizzle_bits(map));
                if (from)
                    memcpy(destination, from, bytes);
                else
                    memset(destination, 0, bytes);
            });
        });
    }
}

/* ---- Tensor stores ---------------------------------------------------------------------------------------------------- */

namespace {

void read_source(Thread &t, Store &s) {
    if (s.read) return;
    s.read = true;
    complete(*t.block, s.shared, box_bytes(s.map), Access::Read, t.actor, t.clock);
}

void write_out(Thread &t, Store &s) {
    if (s.written) return;
    s.written = true;
    for_rows(s.map, s.at, [&](size_t offset, char *to, size_t bytes) {
        if (to) memcpy(to, s.source.data() + offset, bytes);
    });
    for_rows(s.map, s.at, [&](size_t, char *to, size_t bytes) {
        if (to) complete(*t.block, to, bytes, Access::Write, t.actor, t.clock);
    });
}

/* The box as it is in shared memory now, its swizzle undone. */
void fetch(const Block &b, Store &s) {
    s.source.resize(box_bytes(s.map));
    for (size_t i = 0; i < s.source.size(); i++) s.source[i] = *place_of((char *)s.shared, b, i, swizzle_bits(s.map));
}

} // namespace

void tensor_store(const void *opaque, const void *shared, int rank, const int *at_element, Site at) {
    Thread &t = self();
    t.at = at;
    Store s{};
    s.map = map_at(opaque, rank, at);
    s.shared = shared;
    s.group = t.store_group;
    std::copy(at_element, at_element + rank, s.at);
    size_t bytes = box_bytes(s.map);
    own_shared(shared, bytes, 128, "tensor store");
    check_async(shared, bytes, Access::Read, t.actor, true);
    for_rows(s.map, s.at, [&](size_t, char *to, size_t n) {
        if (to) global_range(to, n, 1, "tensor store"), check_async(to, n, Access::Write, t.actor, true);
    });
    if (modes.landing == Landing::Early) fetch(*t.block, s);
    t.stores.push_back(std::move(s));
}

void bulk_commit() { self().store_group++; }

void bulk_wait(unsigned pending, bool read) {
    Thread &t = self();
    for (Store &s : t.stores)
        if (s.group + pending < t.store_group) {
            if (s.source.empty()) fetch(*t.block, s);
            read_source(t, s);
            if (!read || modes.landing == Landing::Early) write_out(t, s);
        }
    t.stores.erase(std::remove_if(t.stores.begin(), t.stores.end(), [](const Store &s) { return s.read && s.written; }), t.stores.end());
}

/* Copies into shared memory are lost with the thread's interest in them; stores still reach device memory, but their source must
 * have been read while the block was there. */
void end_copies(Thread &t) {
    if (!t.products.empty()) fault("protocol", "thread ends with wgmma under way");
    for (Store &s : t.stores) {
        if (!s.read) fault("protocol", "thread ends before its tensor store has read shared memory: cp.async.bulk.wait_group.read is missing");
        write_out(t, s);
    }
    t.stores.clear();
}

void proxy_fence() {
    Thread &t = self();
    t.proxy_fenced = t.clock;
    tick(t);
}

} // namespace twd

/* Tensor cores: ldmatrix, mma.sync, mma.sp and wgmma, with the fragment layouts of the PTX ISA, sections "Warp-level matrix load
 * instruction: ldmatrix", "Matrix fragments for mma.m16n8k16 / m16n8k8 / m16n8k32" and "Asynchronous warpgroup level matrix
 * instructions". How tensor cores add is in no manual: `add_products` has a model of it that was compared with an A100 bit by bit. */
#include "engine.h"
#include "tensor_map.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace twd {

/* ---- 16-bit floats ---------------------------------------------------------------------------------------------------- */

namespace {

float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
uint32_t to_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

struct HalfTable {
    std::vector<float> values;
    HalfTable() : values(65536) {
        for (uint32_t bits = 0; bits < 65536; bits++) {
            int exponent = (int)(bits >> 10 & 31);
            uint32_t mantissa = bits & 1023, sign = bits >> 15 << 31;
            float magnitude = exponent == 31 ? from_bits(0x7f800000u | mantissa << 13)
                              : exponent ? from_bits((uint32_t)(exponent + 112) << 23 | mantissa << 13)
                                         : ldexpf((float)mantissa, -24);
            values[bits] = from_bits(to_bits(magnitude) | sign);
        }
    }
} const halves;

} // namespace

float f16_to_float(uint16_t bits) { return halves.values[bits]; }

uint16_t float_to_f16(float x) {
    uint32_t bits = to_bits(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return 0x7fff; /* NaN, canonical */
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) /* subnormal: a multiple of 2^-24 */
        return (uint16_t)(sign | (uint32_t)nearbyintf(fabsf(x) * 16777216.0f));
    magnitude += 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (magnitude - 0x38000000) >> 13);
}

uint16_t float_to_bf16(float x) {
    uint32_t bits = to_bits(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- ldmatrix --------------------------------------------------------------------------------------------------------- */

void ldmatrix(unsigned *r, int matrices, bool transposed, const void *shared, Site at) {
    struct Lane { unsigned *r; const void *row; int matrices; bool transposed; Site at; } own{r, shared, matrices, transposed, at};
    whole_warp("ldmatrix", at);
    if (self().lane < (unsigned)matrices * 8) {
        if (&own_shared(shared, 16, 16, "ldmatrix") != self().block) fault("out-of-bounds", "%s:%d: ldmatrix from another block", at.file, at.line);
        check(shared, 16, Access::Read);
    }
    rendezvous(~0u, &own, at, [](void **arguments, unsigned lanes) {
        const Lane &first = *(Lane *)arguments[__builtin_ctz(lanes)];
        if (lanes != ~0u) fault("divergence", "%s:%d: ldmatrix without lanes %08x", first.at.file, first.at.line, ~lanes);
        for (int l = 0; l < 32; l++) {
            Lane &lane = *(Lane *)arguments[l];
            if (lane.at.line != first.at.line) fault("divergence", "lanes of a warp meet in ldmatrix at %s:%d and line %d", first.at.file, first.at.line, lane.at.line);
            for (int m = 0; m < first.matrices; m++) {
                uint16_t pair[2];
                for (int e = 0; e < 2; e++) {
                    int row = first.transposed ? l % 4 * 2 + e : l / 4, column = first.transposed ? l / 4 : l % 4 * 2 + e;
                    memcpy(&pair[e], (const char *)((Lane *)arguments[m * 8 + row])->row + column * 2, 2);
                }
                lane.r[m] = pair[0] | (unsigned)pair[1] << 16;
            }
        }
    });
}

/* ---- mma.sync --------------------------------------------------------------------------------------------------------- */

namespace {

float element(Type type, unsigned word, int part) {
    switch (type) {
    case Type::F16: return halves.values[word >> 16 * part & 0xffff];
    case Type::BF16: return from_bits((word >> 16 * part) << 16);
    case Type::TF32: return from_bits(word & 0xffffe000u);
    case Type::S8: return (float)(int8_t)(word >> 8 * part);
    case Type::U8: return (float)(uint8_t)(word >> 8 * part);
    case Type::U8_S8: case Type::S8_U8: break;
    }
    return 0;
}

/* Bits behind those of a float that addends keep when they are aligned, and why sums are taken `terms` products at a time (4 of tf32,
 * 8 of 16 bits): the tensor cores of an A100, as Khattak and Mikaitis measured them ("Accurate Models of NVIDIA Tensor Cores", arXiv
 * 2512.07004; Fasi et al., "Numerical behavior of NVIDIA tensor cores", PeerJ CS 2021, found the truncation). Those of an H100 keep
 * one bit more and take twice as many products, so that they lose less. */
constexpr int EXTRA_BITS = 1;

int exponent_of(float x) { return (int)(to_bits(x) >> 23 & 255) - 127; }

/* sums[column] += the sum over i of a[i] b[i][column]: the products are exact; they and the sum so far are cut off (toward zero) below
 * the last kept bit of the largest exponent among them, added exactly, and the result is cut off to a float. The exponent of a product
 * is the sum of its factors'. Infinities, NaN and what is at the ends of the range are
 * added in float instead. */
template <int columns> void add_products(float *sums, const float *a, const float (*b)[columns], int terms) {
    constexpr int KEPT = 23 + EXTRA_BITS, ZERO = -127, LEAST = -126, MOST = 127, INFINITE = 128;
    int largest[columns];
    for (int column = 0; column < columns; column++) largest[column] = exponent_of(sums[column]);
    for (int i = 0; i < terms; i++) {
        const int own = exponent_of(a[i]);
        if (own == ZERO) continue;
        for (int column = 0; column < columns; column++) {
            const int exponent = exponent_of(b[i][column]);
            const int product = own == INFINITE || exponent == INFINITE ? 2 * INFINITE : exponent == ZERO ? ZERO : own + exponent;
            largest[column] = std::max(largest[column], product);
        }
    }
    bool plain[columns], any = false;
    double scale[columns];
    for (int column = 0; column < columns; column++) {
        plain[column] = largest[column] < LEAST || largest[column] > MOST;
        any |= plain[column];
        const uint64_t bits = (uint64_t)(1023 + KEPT - (plain[column] ? 0 : largest[column])) << 52;
        memcpy(&scale[column], &bits, 8);
    }
    float before[columns];
    int total[columns];
    for (int column = 0; column < columns; column++) {
        before[column] = sums[column];
        total[column] = plain[column] ? 0 : (int)((double)sums[column] * scale[column]);
    }
    for (int i = 0; i < terms; i++)
        for (int column = 0; column < columns; column++)
            total[column] += plain[column] ? 0 : (int)((double)a[i] * (double)b[i][column] * scale[column]);
    for (int column = 0; column < columns; column++) {
        const double sum = total[column] / scale[column];
        uint64_t bits;
        memcpy(&bits, &sum, 8);
        bits &= ~(uint64_t)0 << 29; /* of a float's mantissa, 23 of 52 bits stay */
        double cut;
        memcpy(&cut, &bits, 8);
        sums[column] = (float)cut;
    }
    if (!any) return;
    for (int column = 0; column < columns; column++) {
        if (!plain[column]) continue;
        sums[column] = before[column];
        for (int i = 0; i < terms; i++) sums[column] += a[i] * b[i][column];
    }
}

struct MmaLane {
    Type type;
    void *d;
    const unsigned *a, *b;
    Site at;
};

/* d (16 x 8) += a (16 x k) b (k x 8). A register holds `per` neighbours along k; a half of the fragment spans 4 registers. */
template <class T> void multiply(void **arguments, Type type_a, Type type_b, int k, int per) {
    T a[16][32], b[32][8], d[16][8];
    const int half = k / 2;
    for (int l = 0; l < 32; l++) {
        const MmaLane &lane = *(MmaLane *)arguments[l];
        const int g = l / 4, t = l % 4;
        for (int e = 0; e < per; e++) {
            for (int i = 0; i < 4; i++) a[g + i % 2 * 8][i / 2 * half + t * per + e] = (T)element(type_a, lane.a[i], e);
            for (int i = 0; i < 2; i++) b[i * half + t * per + e][g] = (T)element(type_b, lane.b[i], e);
        }
        for (int i = 0; i < 4; i++) d[g + i / 2 * 8][t * 2 + i % 2] = ((const T *)lane.d)[i];
    }
    for (int row = 0; row < 16; row++) {
        if constexpr (std::is_same_v<T, float>) {
            for (int i = 0; i < k; i += 4 * per) add_products<8>(d[row], a[row] + i, b + i, 4 * per);
        } else {
            for (int i = 0; i < k; i++)
                for (int column = 0; column < 8; column++) d[row][column] += a[row][i] * b[i][column];
        }
    }
    for (int l = 0; l < 32; l++) {
        const MmaLane &lane = *(MmaLane *)arguments[l];
        for (int i = 0; i < 4; i++) ((T *)lane.d)[i] = d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
    }
}

} // namespace

void mma(Type type, void *d, const unsigned *a, const unsigned *b, Site at) {
    MmaLane own{type, d, a, b, at};
    whole_warp("mma", at);
    rendezvous(~0u, &own, at, [](void **arguments, unsigned lanes) {
        const MmaLane &first = *(MmaLane *)arguments[__builtin_ctz(lanes)];
        if (lanes != ~0u) fault("divergence", "%s:%d: mma without lanes %08x", first.at.file, first.at.line, ~lanes);
        for (int l = 0; l < 32; l++) {
            const MmaLane &lane = *(MmaLane *)arguments[l];
            if (lane.type != first.type || lane.at.line != first.at.line)
                fault("divergence", "lanes of a warp meet in mma at %s:%d and line %d", first.at.file, first.at.line, lane.at.line);
        }
        switch (first.type) {
        case Type::F16: case Type::BF16: return multiply<float>(arguments, first.type, first.type, 16, 2);
        case Type::TF32: return multiply<float>(arguments, first.type, first.type, 8, 1);
        case Type::S8: case Type::U8: return multiply<int32_t>(arguments, first.type, first.type, 32, 4);
        case Type::U8_S8: return multiply<int32_t>(arguments, Type::U8, Type::S8, 32, 4);
        case Type::S8_U8: return multiply<int32_t>(arguments, Type::S8, Type::U8, 32, 4);
        }
    });
}

/* ---- mma.sp ----------------------------------------------------------------------------------------------------------- */

namespace {

struct SparseLane {
    Type type;
    void *d;
    const unsigned *a, *b;
    unsigned metadata, selector;
    Site at;
};

/* The bits of a row's four columns from 4 * chunk on, of the lane of the row's group that holds them: "Sparse MMA .m16n8k32 metadata
 * layout for .f16/.bf16 type", where a lane has 16 columns of two rows, and "Sparse MMA .m16n8k64 metadata layout" for columns 0-31 and
 * 32-63 "for .u8/.s8", where it has 32 of one. */
unsigned places_of(void **arguments, int row, int chunk, unsigned selector) {
    const bool octets = ((SparseLane *)arguments[0])->type == Type::S8 || ((SparseLane *)arguments[0])->type == Type::S8_U8;
    const int lane = row % 8 * 4 + (octets ? chunk / 8 * 2 + row / 8 : (int)selector * 2 + chunk / 4);
    return ((SparseLane *)arguments[lane])->metadata >> (octets ? chunk % 8 * 4 : row / 8 * 16 + chunk % 4 * 4) & 15;
}

/* Two indices, the second above the first: "0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110 are the meaningful values of indices". */
bool is_ordered(unsigned places) { return places >> 2 > (places & 3); }

/* d (16 x 8) += a (16 x 16 * per, of which half is given) b (16 * per x 8). A register holds `per` neighbours along k. Each given
 * element of a is multiplied by that of b which its index names; what is not given is not multiplied: not with infinities either. How
 * many given products of floats are added at a time is not known: 8, as of dense ones. */
template <class T> void multiply_sparse(void **arguments, Type type_a, Type type_b, int per) {
    const SparseLane &first = *(SparseLane *)arguments[0];
    const int kept = 8 * per;
    T a[16][32], b[64][8], d[16][8];
    for (int l = 0; l < 32; l++) {
        const SparseLane &lane = *(SparseLane *)arguments[l];
        const int g = l / 4, t = l % 4;
        for (int i = 0; i < 4; i++)
            for (int e = 0; e < per; e++) {
                a[g + i % 2 * 8][i / 2 * (kept / 2) + t * per + e] = (T)element(type_a, lane.a[i], e);
                b[i * 4 * per + t * per + e][g] = (T)element(type_b, lane.b[i], e);
            }
        for (int i = 0; i < 4; i++) d[g + i / 2 * 8][t * 2 + i % 2] = ((const T *)lane.d)[i];
    }
    for (int row = 0; row < 16; row++) {
        T beside[32][8];
        for (int i = 0; i < kept; i++) {
            const int chunk = i / 2;
            const unsigned places = places_of(arguments, row, chunk, first.selector);
            if (!is_ordered(places)) fault("protocol", "%s:%d: mma.sp with the indices %u of row %d, columns %d to %d", first.at.file, first.at.line, places, row, chunk * 4, chunk * 4 + 3);
            memcpy(beside[i], b[chunk * 4 + (int)(places >> i % 2 * 2 & 3)], sizeof beside[i]);
        }
        if constexpr (std::is_same_v<T, float>) {
            for (int i = 0; i < kept; i += 8) add_products<8>(d[row], a[row] + i, beside + i, 8);
        } else {
            for (int i = 0; i < kept; i++)
                for (int column = 0; column < 8; column++) d[row][column] = (T)((unsigned)d[row][column] + (unsigned)(a[row][i] * beside[i][column]));
        }
    }
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++) ((T *)((SparseLane *)arguments[l])->d)[i] = d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
}

} // namespace

void mma_sp(Type type, void *d, const unsigned *a, const unsigned *b, unsigned metadata, unsigned selector, Site at) {
    SparseLane own{type, d, a, b, metadata, selector, at};
    whole_warp("mma.sp", at);
    if (selector > 1) fault("protocol", "%s:%d: mma.sp.m16n8k32 of 16 bits with the selector %u", at.file, at.line, selector);
    rendezvous(~0u, &own, at, [](void **arguments, unsigned lanes) {
        const SparseLane &first = *(SparseLane *)arguments[__builtin_ctz(lanes)];
        if (lanes != ~0u) fault("divergence", "%s:%d: mma.sp without lanes %08x", first.at.file, first.at.line, ~lanes);
        for (int l = 0; l < 32; l++) {
            const SparseLane &lane = *(SparseLane *)arguments[l];
            if (lane.type != first.type || lane.selector != first.selector || lane.at.line != first.at.line)
                fault("divergence", "lanes of a warp meet in mma.sp at %s:%d and line %d", first.at.file, first.at.line, lane.at.line);
        }
        switch (first.type) {
        case Type::S8: return multiply_sparse<int32_t>(arguments, Type::S8, Type::S8, 4);
        case Type::S8_U8: return multiply_sparse<int32_t>(arguments, Type::S8, Type::U8, 4);
        default: return multiply_sparse<float>(arguments, first.type, first.type, 2);
        }
    });
}

/* ---- wgmma ------------------------------------------------------------------------------------------------------------ */

namespace {

struct Operand { /* "Matrix Descriptor Format" */
    uint64_t start, leading, stride;
    uint32_t bits; /* of the swizzle: 0 none, 3 for 128 bytes */
};

Operand operand(uint64_t descriptor) {
    static const uint32_t bits[4] = {0, 3, 2, 1};
    return {(descriptor & 0x3fff) << 4, (descriptor >> 16 & 0x3fff) << 4, (descriptor >> 32 & 0x3fff) << 4, bits[descriptor >> 62]};
}

/* Offset in shared memory of element (mn, k), `size` bytes each ("Shared Memory Matrix Layout" and its canonical layouts). */
uint64_t element_offset(const Operand &o, bool mn_major, int mn, int k, int size) {
    const uint64_t across = (uint64_t)(mn_major ? mn : k) * (uint64_t)size, along = (uint64_t)(mn_major ? k : mn);
    const uint64_t width = o.bits ? 16u << o.bits : 16; /* bytes of a row of the swizzled atom */
    uint64_t offset = o.start + along % 8 * width + across % width;
    if (!o.bits)
        offset += mn_major ? along / 8 * o.leading + across / width * o.stride : along / 8 * o.stride + across / width * o.leading;
    else if (mn_major)
        offset += along / 8 * o.stride + across / width * o.leading;
    else
        offset += along / 8 * o.stride; /* a product's k lies within one width */
    return o.bits ? swizzled(offset, o.bits) : offset;
}

bool is_of_bytes(Type type) { return type != Type::F16 && type != Type::BF16 && type != Type::TF32; }
int size_of(Type type) { return is_of_bytes(type) ? 1 : type == Type::TF32 ? 4 : 2; }

/* Elements along k that a row of a has in memory, 32 bytes, and those of b. */
int k_of(Type type) { return 32 / size_of(type); }
int k_of_b(const Product &p) { return p.sparse ? 2 * k_of(p.type) : k_of(p.type); }

template <class F> void for_elements(const Product &p, F f) {
    const int size = size_of(p.type), k = k_of(p.type);
    const Operand a = operand(p.a), b = operand(p.b);
    for (int i = 0; i < k; i++)
        for (int row = 0; row < 64; row++) f(0, row, i, element_offset(a, p.transpose_a, row, i, size), size);
    for (int i = 0; i < k_of_b(p); i++)
        for (int column = 0; column < p.n; column++) f(1, column, i, element_offset(b, p.transpose_b, column, i, size), size);
}

/* Who reads the operands: the tensor cores of this warpgroup, whose reading is over for each thread that has waited. */
unsigned reader(const Thread &t) {
    return actors_of(*t.block->cluster) - 1 - (t.block->rank * (unsigned)t.block->warpgroups.size() + t.linear / 128) % WARPGROUP_AGENTS;
}

Thread *warpgroup(Thread &t) { return &t.block->threads[t.linear / 128 * 128]; }

/* Waits for all 128 threads of the warpgroup; true in the last one, which must call release_warpgroup. */
bool meet(Site at) {
    Thread &t = self();
    Block &b = *t.block;
    if (b.threads.size() % 128) fault("divergence", "%s:%d: a warpgroup of %zu threads", at.file, at.line, b.threads.size() % 128);
    t.at = at;
    auto &waiting = b.warpgroups[t.linear / 128];
    waiting.push_back(&t);
    if (waiting.size() == 128) {
        for (Thread *other : waiting)
            if (other->at.line != at.line || strcmp(other->at.file, at.file))
                fault("divergence", "threads of a warpgroup meet at %s:%d and %s:%d", at.file, at.line, other->at.file, other->at.line);
        return true;
    }
    wait_in(State::Warpgroup, at);
    return false;
}

void release_warpgroup() {
    Thread &t = self();
    auto &waiting = t.block->warpgroups[t.linear / 128];
    for (Thread *other : waiting)
        if (other != &t) wake(*other);
    waiting.clear();
}

/* The values of an accumulator under way are kept here; the array itself holds NaN, or -1, until the wait. */
std::vector<uint32_t> &accumulator(Thread &t, void *d) {
    for (auto &[at, values] : t.accumulators)
        if (at == d) return values;
    fault("protocol", "no accumulator");
}

/* The places of the two given elements of a row among its columns from 4 * chunk on: "Sparse WGMMA .m64nNk32 metadata layout for
 * .f16/.bf16 type", where a warp has 16 rows, lanes 0 and 1 of a group of four have 16 columns each of two rows with selector 0, and
 * lanes 2 and 3 with 1; and ".m64nNk64 metadata layout for .e4m3/.e5m2/.s8/.u8 type", where each lane has 32 columns of one row. */
unsigned places_in(Thread *group, size_t index, int row, int chunk) {
    const Product &first = group->products[index];
    const bool octets = is_of_bytes(first.type);
    const int lane = row % 8 * 4 + (octets ? chunk / 8 * 2 + row % 16 / 8 : (int)first.selector * 2 + chunk / 4);
    const unsigned word = group[row / 16 * 32 + lane].products[index].metadata;
    const unsigned places = word >> (octets ? chunk % 8 * 4 : row % 16 / 8 * 16 + chunk % 4 * 4) & 15;
    if (!is_ordered(places)) fault("protocol", "wgmma.sp with the indices %u of row %d, columns %d to %d", places, row, chunk * 4, chunk * 4 + 3);
    return places;
}

Type type_of_a(Type type) { return type == Type::U8_S8 ? Type::U8 : type == Type::S8_U8 ? Type::S8 : type; }
Type type_of_b(Type type) { return type == Type::U8_S8 ? Type::S8 : type == Type::S8_U8 ? Type::U8 : type; }

/* Sums of floats as `add_products` has them; those of whole numbers wrap around. */
template <class T> void execute_in(Thread *group, size_t index) {
    const Product p = group->products[index];
    const int k = k_of(p.type), rows = 64;
    static std::vector<T> a, b, d;
    a.assign((size_t)(rows * k), 0), b.assign((size_t)(k_of_b(p) * p.n), 0), d.assign((size_t)(rows * p.n), 0);
    const unsigned char *shared = group->block->shared;
    for_elements(p, [&](int which, int mn, int i, uint64_t offset, int size) {
        unsigned word = 0;
        memcpy(&word, shared + offset, (size_t)size);
        const float value = element(which ? type_of_b(p.type) : type_of_a(p.type), word, 0);
        (which ? b[(size_t)(i * p.n + mn)] : a[(size_t)(mn * k + i)]) = std::is_same_v<T, float> ? (T)value : (T)(int)value;
    });
    auto at = [&](unsigned thread, int e) { return (size_t)((int)(thread / 32 * 16 + thread % 32 / 4) + e % 4 / 2 * 8) * (size_t)p.n + (size_t)(e / 4 * 8 + (int)(thread % 4) * 2 + e % 2); };
    if (p.accumulate)
        for (unsigned t = 0; t < 128; t++)
            for (int e = 0; e < p.n / 2; e++) memcpy(&d[at(t, e)], &accumulator(group[t], group[t].products[index].d)[(size_t)e], 4);
    const int terms = k / 2;
    for (int first = 0; first < p.n; first += 8)
        for (int i = 0; i < k; i += terms) {
            T factors[16][8]; /* k and columns */
            auto load = [&](int own, int from) { memcpy(factors[own], &b[(size_t)(from * p.n + first)], sizeof factors[own]); };
            for (int own = 0; own < terms && !p.sparse; own++) load(own, i + own);
            for (int row = 0; row < rows; row++) {
                for (int own = 0; own < terms && p.sparse; own++) {
                    const int chunk = (i + own) / 2;
                    load(own, chunk * 4 + (int)(places_in(group, index, row, chunk) >> own % 2 * 2 & 3));
                }
                T *const sums = &d[(size_t)(row * p.n + first)];
                const T *const own = &a[(size_t)(row * k + i)];
                if constexpr (std::is_same_v<T, float>) {
                    add_products<8>(sums, own, factors, terms);
                } else {
                    for (int term = 0; term < terms; term++)
                        for (int column = 0; column < 8; column++) sums[column] += own[term] * factors[term][column];
                }
            }
        }
    for (unsigned t = 0; t < 128; t++)
        for (int e = 0; e < p.n / 2; e++) memcpy(&accumulator(group[t], group[t].products[index].d)[(size_t)e], &d[at(t, e)], 4);
}

void execute(Thread *group, size_t index) {
    if (is_of_bytes(group->products[index].type)) execute_in<uint32_t>(group, index);
    else execute_in<float>(group, index);
}

/* Accumulators that no product under way uses any more go back into their arrays. */
void give_back(Thread &t) {
    for (size_t i = 0; i < t.accumulators.size();) {
        auto &[d, values] = t.accumulators[i];
        const void *array = d;
        if (std::any_of(t.products.begin(), t.products.end(), [=](const Product &p) { return p.d == array; })) {
            i++;
            continue;
        }
        std::vector<uint32_t> held(values.size());
        memcpy(held.data(), d, held.size() * 4);
        for (uint32_t word : held)
            if (word != ~0u) fault("race", "thread %u writes an accumulator while wgmma is under way", t.linear);
        memcpy(d, values.data(), values.size() * 4);
        t.accumulators.erase(t.accumulators.begin() + (long)i);
    }
}

} // namespace

uint64_t wgmma_descriptor(const void *shared, unsigned leading, unsigned stride, unsigned swizzle) {
    if ((leading % 16 && leading != 1) || stride % 16) fault("misaligned", "wgmma descriptor with distances %u and %u", leading, stride);
    const unsigned address = shared_address(shared);
    if (address >= SLOT_BYTES) fault("limit", "the double multiplies matrices in dynamic shared memory");
    return (uint64_t)(address >> 4) | (uint64_t)((leading & 0x3ffff) >> 4) << 16 |
           (uint64_t)((stride & 0x3ffff) >> 4) << 32 | (uint64_t)swizzle << 62;
}

void wgmma_fence() { self().product_fence = true; }

static void begin(const Product &own, Site at) {
    Thread &t = self();
    void *const d = own.d;
    const int n = own.n;
    whole_warp("wgmma", at);
    bool under_way = std::any_of(t.accumulators.begin(), t.accumulators.end(), [=](auto &entry) { return entry.first == d; });
    if (!under_way) {
        if (!t.product_fence) fault("protocol", "%s:%d: wgmma without wgmma.fence since its accumulator was written", at.file, at.line);
        t.accumulators.emplace_back(d, std::vector<uint32_t>((size_t)n / 2));
        memcpy(t.accumulators.back().second.data(), d, (size_t)n * 2);
        memset(d, 0xff, (size_t)n * 2);
    }
    t.products.push_back(own);
    if (!meet(at)) return;
    Thread *group = warpgroup(t);
    for (int i = 0; i < 128; i++) {
        const Product &other = group[i].products.back();
        if (other.a != own.a || other.b != own.b || other.n != n || other.type != own.type || other.accumulate != own.accumulate ||
            other.sparse != own.sparse || other.selector != own.selector)
            fault("divergence", "%s:%d: threads of a warpgroup multiply different matrices", at.file, at.line);
    }
    size_t limit = t.block->launch->shared;
    for_elements(own, [&](int, int, int, uint64_t offset, int size) {
        if (offset + (uint64_t)size > limit) fault("out-of-bounds", "%s:%d: a wgmma descriptor reaches byte %zu of %zu", at.file, at.line, (size_t)offset, limit);
        check_async(t.block->shared + offset, (size_t)size, Access::Read, reader(t), true);
    });
    if (modes.landing == Landing::Early || (modes.landing == Landing::Random && group->products.size() == 1 && random_below(2)))
        execute(group, group->products.size() - 1), group->products.back().done = true;
    release_warpgroup();
}

void wgmma(Type type, void *d, int n, uint64_t a, uint64_t b, bool accumulate, bool transpose_a, bool transpose_b, Site at) {
    begin({type, d, n, a, b, accumulate, transpose_a, transpose_b, self().product_group}, at);
}

void wgmma_sp(Type type, void *d, int n, uint64_t a, uint64_t b, unsigned metadata, unsigned selector, bool accumulate, Site at) {
    if (selector > !is_of_bytes(type)) fault("protocol", "%s:%d: wgmma.sp with the selector %u", at.file, at.line, selector);
    begin({type, d, n, a, b, accumulate, false, false, self().product_group, false, true, metadata, selector}, at);
}

void wgmma_commit() { self().product_group++; }

void wgmma_wait(unsigned pending, Site at) {
    Thread &t = self();
    whole_warp("wgmma.wait_group", at);
    if (meet(at)) {
        Thread *group = warpgroup(t);
        auto over = [&](const Product &p) { return p.group + pending < t.product_group; };
        const unsigned actor = reader(t);
        const uint32_t clock = ++t.block->cluster->agent_clocks[actor + AGENTS - actors_of(*t.block->cluster)];
        for (size_t i = 0; i < group->products.size(); i++) {
            const Product p = group->products[i];
            if (!over(p)) continue;
            if (!p.done) execute(group, i);
            for_elements(p, [&](int, int, int, uint64_t offset, int size) {
                complete(*t.block, t.block->shared + offset, (size_t)size, Access::Read, actor, clock);
            });
        }
        for (int i = 0; i < 128; i++) {
            auto &products = group[i].products;
            products.erase(std::remove_if(products.begin(), products.end(), over), products.end());
            give_back(group[i]);
            if (!engine.checked) continue;
            auto known = knowledge(group[i]);
            known[actor] = clock;
            group[i].seen = std::make_shared<const std::vector<uint32_t>>(std::move(known));
        }
        release_warpgroup();
    }
    t.product_fence = false;
}

} // namespace twd

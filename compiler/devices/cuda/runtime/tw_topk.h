/* Selection and sorting by a block of threads, after `tw_scalar.h`: plain CUDA C++, the same for NVRTC and for g++. */
#pragma once

/* Unsigned numbers that rise as elements do. Elements that compare equal have one, such as both zeros; NaN has the greatest. */
TW_DEVICE uint32_t tw_rank(float x) {
    const uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x);
    return x != x ? 0xffffffffu : bits >> 31 ? ~bits : bits | 0x80000000u;
}
TW_DEVICE uint64_t tw_rank(double x) {
    const uint64_t bits = (uint64_t)__double_as_longlong(x == 0 ? 0.0 : x);
    return x != x ? ~(uint64_t)0 : bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}
TW_DEVICE uint32_t tw_rank(tw_f16 x) { return tw_rank(tw_to_float(x)); }
TW_DEVICE uint32_t tw_rank(tw_bf16 x) { return tw_rank(tw_to_float(x)); }
TW_DEVICE uint32_t tw_rank(uint8_t x) { return x; }
TW_DEVICE uint32_t tw_rank(uint16_t x) { return x; }
TW_DEVICE uint32_t tw_rank(uint32_t x) { return x; }
TW_DEVICE uint64_t tw_rank(uint64_t x) { return x; }
TW_DEVICE uint32_t tw_rank(int8_t x) { return (uint32_t)x ^ 0x80000000u; }
TW_DEVICE uint32_t tw_rank(int16_t x) { return (uint32_t)x ^ 0x80000000u; }
TW_DEVICE uint32_t tw_rank(int32_t x) { return (uint32_t)x ^ 0x80000000u; }
TW_DEVICE uint64_t tw_rank(int64_t x) { return (uint64_t)x ^ (uint64_t)1 << 63; }

/* An element by its key, which rises from the first to come to the last, and its place in the row: no two are equal. */
template <class Key> struct tw_ranked {
    Key key;
    uint32_t index;
};
template <class Key> TW_DEVICE bool tw_precedes(const tw_ranked<Key> &one, const tw_ranked<Key> &other) {
    return one.key < other.key || (one.key == other.key && one.index < other.index);
}

/* A row: `extent` elements that lie `inner` apart, of which the greatest come first, or the least. */
template <bool greatest, class T> struct tw_row {
    typedef decltype(tw_rank(T())) Key;
    const T *from;
    int extent;
    int64_t inner;
    TW_DEVICE Key key(int at) const {
        const Key rank = tw_rank(from[at * inner]);
        return greatest ? ~rank : rank;
    }
};

/* Sorts `size` entries, a power of two, by a bitonic network. Barriers stand before and after. */
template <int threads, class Key> TW_DEVICE void tw_sort(tw_ranked<Key> *entries, int size) {
    for (int run = 2; run <= size; run *= 2)
        for (int apart = run / 2; apart; apart /= 2) {
            __syncthreads();
            for (int pair = threadIdx.x; pair < size / 2; pair += threads) {
                const int at = 2 * pair - (pair & (apart - 1));
                const tw_ranked<Key> one = entries[at], other = entries[at + apart];
                if (tw_precedes(other, one) == !(at & run)) {
                    entries[at] = other;
                    entries[at + apart] = one;
                }
            }
        }
    __syncthreads();
}

/* Fills the entries from `first` on with what comes after every element. */
template <int threads, class Key> TW_DEVICE void tw_pad(tw_ranked<Key> *entries, int first, int size) {
    for (int at = first + (int)threadIdx.x; at < size; at += threads) entries[at] = {(Key)~(Key)0, 0xffffffffu};
}

/* All elements of a row in their order, for `size` of at least `extent`. */
template <int threads, bool greatest, class T>
TW_DEVICE void tw_sort_row(tw_row<greatest, T> row, tw_ranked<typename tw_row<greatest, T>::Key> *entries, int size) {
    for (int at = threadIdx.x; at < row.extent; at += threads) entries[at] = {row.key(at), (uint32_t)at};
    tw_pad<threads>(entries, row.extent, size);
    tw_sort<threads>(entries, size);
}

/* The digit in which the `left`th of counted numbers is found, digits taken in rising order; `left` becomes its rank among those
 * with that digit. Each warp finds it for itself. */
TW_DEVICE uint32_t tw_digit(const uint32_t *counts, uint32_t &left) {
    const int lane = threadIdx.x % 32;
    uint32_t own = 0;
    for (int at = 0; at < 8; at++) own += counts[8 * lane + at];
    uint32_t before = own;
    for (int lanes = 1; lanes < 32; lanes *= 2) {
        const uint32_t others = __shfl_up_sync(0xffffffffu, before, lanes);
        if (lane >= lanes) before += others;
    }
    before -= own;
    const int holder = __ffs(__ballot_sync(0xffffffffu, before < left && left <= before + own)) - 1;
    uint32_t digit = 8 * lane, rest = left - before;
    if (lane == holder)
        for (; rest > counts[digit]; digit++) rest -= counts[digit];
    left = __shfl_sync(0xffffffffu, rest, holder);
    return __shfl_sync(0xffffffffu, digit, holder);
}

/* The first `k` elements of a row in their order, for `size` of at least `k`. `counts` are TW_COUNTS words of shared memory. */
#define TW_COUNTS 257
template <int threads, bool greatest, class T>
TW_DEVICE void tw_select_row(tw_row<greatest, T> row, int k, tw_ranked<typename tw_row<greatest, T>::Key> *entries, int size,
                             uint32_t *counts) {
    typedef typename tw_row<greatest, T>::Key Key;
    tw_ranked<Key> last = {0, 0}, decided = {0, 0}; /* of the kth element, the digits found so far and their mask */
    uint32_t left = (uint32_t)k;
    const int index_bits = 32 - __clz(row.extent - 1);
    for (int shift = 8 * (int)sizeof(Key) - 8; shift > -8 - index_bits; shift -= 8) {
        const int index_shift = (index_bits + 7) / 8 * 8 + shift; /* digits of the index follow those of the key */
        __syncthreads();
        for (int at = threadIdx.x; at < TW_COUNTS; at += threads) counts[at] = 0;
        __syncthreads();
        for (int at = threadIdx.x; at < row.extent; at += threads) {
            const Key key = row.key(at);
            if ((key ^ last.key) & decided.key || ((uint32_t)at ^ last.index) & decided.index) continue;
            atomicAdd(counts + (shift >= 0 ? (uint32_t)(key >> shift) : (uint32_t)at >> index_shift) % 256, 1u);
        }
        __syncthreads();
        const uint32_t digit = tw_digit(counts, left);
        if (shift >= 0) {
            last.key |= (Key)digit << shift;
            decided.key |= (Key)255 << shift;
        } else {
            last.index |= digit << index_shift;
            decided.index |= 255u << index_shift;
        }
    }
    for (int at = threadIdx.x; at < row.extent; at += threads) {
        const tw_ranked<Key> one = {row.key(at), (uint32_t)at};
        if (!tw_precedes(last, one)) entries[atomicAdd(counts + 256, 1u)] = one;
    }
    tw_pad<threads>(entries, k, size);
    tw_sort<threads>(entries, size);
}

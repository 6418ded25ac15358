/* Decision trees walked by a block of threads, after `tw_scalar.h`: plain CUDA C++, the same for NVRTC and for g++. */
#pragma once

/* What a node's first word says. */
TW_DEVICE float tw_asked(int32_t bits) { return __int_as_float(bits); }
TW_DEVICE double tw_asked(int64_t bits) { return __longlong_as_double(bits); }

/* The row of weights of the leaf that a sample reaches from a root. A node is two words (`compiler/ops/forest.py`): what it
 * asks for, and step, feature and, as the sign, where missing values go. A leaf leads to itself. */
template <bool strict, bool missing, int step_bits, int leaf_bits, class T, class Word>
TW_DEVICE int tw_leaf(const T *x, const Word *nodes, int root, int levels) {
    int64_t at = root;
    for (; levels > 0; levels--) {
        const Word rest = nodes[2 * at + 1];
        const T asked = tw_asked(nodes[2 * at]);
        const int free = 8 * sizeof(Word) - step_bits;
        const Word feature = (Word)(rest >> step_bits) & (((Word)1 << (free - 1)) - 1);
        const T value = x[feature];
        bool yes = strict ? value < asked : value <= asked;
        if (missing) yes = yes || (value != value && rest < 0);
        const int64_t step = step_bits == 16 ? (int64_t)(int16_t)rest : (int64_t)(int32_t)rest;
        at += step + !yes;
    }
    return (int)(nodes[2 * at] & (((Word)1 << leaf_bits) - 1));
}

enum { TW_SUM, TW_MIN, TW_MAX };
template <int how, class T> TW_DEVICE T tw_both(T a, T b) {
    return how == TW_SUM ? a + b : how == TW_MIN ? (b < a ? b : a) : (b > a ? b : a);
}

/* What all trees say of each target to one sample, into `to`. `leaves` has room for `chunk` trees, `totals` for `targets`. Warps take
 * targets in turn, lanes every 32nd tree, so that a result does not depend on which thread was first. */
template <int threads, int how, class T, class Leaf>
TW_DEVICE void tw_forest(Leaf leaf, int trees, int chunk, const int32_t *firsts, const T *weights, int width, int targets, T start, int *leaves,
                         T *totals, T *to) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int target = threadIdx.x; target < targets; target += threads) totals[target] = start;
    for (int begin = 0; begin < trees; begin += chunk) {
        const int count = trees - begin < chunk ? trees - begin : chunk;
        __syncthreads();
        for (int tree = threadIdx.x; tree < count; tree += threads) leaves[tree] = leaf(begin + tree);
        __syncthreads();
        for (int target = warp; target < targets; target += threads / 32) {
            T mine = start;
            for (int tree = lane; tree < count; tree += 32) {
                const int column = target - firsts[begin + tree];
                if (column >= 0 && column < width) mine = tw_both<how>(mine, weights[(int64_t)leaves[tree] * width + column]);
            }
            for (int bits = 16; bits; bits /= 2) mine = tw_both<how>(mine, tw_of_lane(mine, bits));
            if (lane == 0) totals[target] = tw_both<how>(totals[target], mine);
        }
    }
    __syncthreads();
    for (int target = threadIdx.x; target < targets; target += threads) to[target] = totals[target];
}

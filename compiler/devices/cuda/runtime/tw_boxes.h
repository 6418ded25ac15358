/* Boxes chosen by a block of threads, after `tw_scalar.h`: plain CUDA C++, the same for NVRTC and for g++.
 *
 * Sums and products of what decides are rounded one by one: contracted, they would decide otherwise at equality. */
#pragma once

/* Least and greatest x, least and greatest y, area. */
struct tw_edges {
    float left, right, low, high, area;
};

/* A box given by two corners, y first, or by its centre, x first, and its sides. */
template <bool centred> TW_DEVICE tw_edges tw_edges_of(const float *box) {
    const float a = box[0], b = box[1], c = box[2], d = box[3];
    tw_edges found;
    if (centred) {
        const float across = __fmul_rn(c, 0.5f), down = __fmul_rn(d, 0.5f);
        found.left = __fsub_rn(a, across), found.right = __fadd_rn(a, across);
        found.low = __fsub_rn(b, down), found.high = __fadd_rn(b, down);
    } else {
        found.left = b >= d ? d : b, found.right = b >= d ? b : d;
        found.low = a >= c ? c : a, found.high = a >= c ? a : c;
    }
    found.area = __fmul_rn(__fsub_rn(found.right, found.left), __fsub_rn(found.high, found.low));
    return found;
}

/* Intersection over union, 0 where there is no area. */
TW_DEVICE float tw_overlap(const tw_edges &one, const tw_edges &two) {
    const float left = one.left < two.left ? two.left : one.left, right = two.right < one.right ? two.right : one.right;
    const float low = one.low < two.low ? two.low : one.low, high = two.high < one.high ? two.high : one.high;
    if (right <= left || high <= low) return 0;
    const float common = __fmul_rn(__fsub_rn(right, left), __fsub_rn(high, low));
    const float whole = __fsub_rn(__fadd_rn(one.area, two.area), common);
    if (common <= 0 || one.area <= 0 || two.area <= 0 || whole <= 0) return 0;
    return __fdiv_rn(common, whole);
}

/* A box that may be the best that is left: its score and its place, -1 for none. */
struct tw_candidate {
    float score;
    int place;
};
TW_DEVICE bool tw_is_better(const tw_candidate &one, const tw_candidate &other) {
    if (one.place < 0 || other.place < 0) return one.place >= 0;
    return one.score > other.score || (one.score == other.score && one.place < other.place);
}

/* The places of at most `most` of `extent` boxes, the best first, and how many they are. `gone` holds one byte for each box, which
 * one thread alone touches; `best` one candidate for each thread, in shared memory. `threads` is a power of two. */
template <int threads, bool centred, class May>
TW_DEVICE int tw_select_boxes(const float *boxes, const float *scores, int extent, int most, float limit, May may,
                              unsigned char *gone, tw_candidate *best, int64_t *to) {
    const int own = threadIdx.x;
    for (int at = own; at < extent; at += threads) gone[at] = !may(scores[at]);
    tw_edges last = {};
    int count = 0;
    for (; count < most; count++) {
        tw_candidate mine = {0, -1};
        for (int at = own; at < extent; at += threads) {
            if (gone[at]) continue;
            if (count && tw_overlap(tw_edges_of<centred>(boxes + 4 * (int64_t)at), last) > limit) {
                gone[at] = 1;
                continue;
            }
            const tw_candidate other = {scores[at], at};
            if (tw_is_better(other, mine)) mine = other;
        }
        best[own] = mine;
        for (int half = threads / 2; half; half /= 2) {
            __syncthreads();
            if (own < half && tw_is_better(best[own + half], best[own])) best[own] = best[own + half];
        }
        __syncthreads();
        const int place = best[0].place;
        __syncthreads();
        if (place < 0) break;
        if (place % threads == own) {
            gone[place] = 1;
            to[count] = place;
        }
        last = tw_edges_of<centred>(boxes + 4 * (int64_t)place);
    }
    return count;
}

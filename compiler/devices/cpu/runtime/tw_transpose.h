/* A square of TW_LANES vectors, its rows and columns exchanged, in log2(TW_LANES) rounds: round s exchanges the off-diagonal
 * quarters of every square of 2 s elements. */
#pragma once

#define TW_LOW(s, c) ((c) & (s) ? TW_LANES + (c) - (s) : (c))
#define TW_HIGH(s, c) ((c) & (s) ? TW_LANES + (c) : (c) + (s))
#define TW_ROUND(s) \
    _Pragma("GCC unroll 16") for (int row = 0; row < TW_LANES; row++) \
        if (!(row & (s))) { \
            const vf a = rows[row], b = rows[row + (s)]; \
            rows[row] = __builtin_shufflevector(a, b, TW_LISTED(TW_LOW, s)); \
            rows[row + (s)] = __builtin_shufflevector(a, b, TW_LISTED(TW_HIGH, s)); \
        }

/* The sum of each row, that of row c in lane c: round s adds what lies s lanes apart, and leaves half as many rows. */
#define TW_SUM_ROUND(s) \
    _Pragma("GCC unroll 16") for (int row = 0; row < TW_LANES; row += 2 * (s)) { \
        const vf a = rows[row], b = rows[row + (s)]; \
        rows[row] = __builtin_shufflevector(a, b, TW_LISTED(TW_LOW, s)) + __builtin_shufflevector(a, b, TW_LISTED(TW_HIGH, s)); \
    }

TW_INLINE vf tw_sums(vf rows[TW_LANES]) {
    TW_SUM_ROUND(1)
    TW_SUM_ROUND(2)
#if TW_LANES >= 8
    TW_SUM_ROUND(4)
#endif
#if TW_LANES >= 16
    TW_SUM_ROUND(8)
#endif
    return rows[0];
}

TW_INLINE void tw_transpose(vf rows[TW_LANES]) {
    TW_ROUND(1)
    TW_ROUND(2)
#if TW_LANES >= 8
    TW_ROUND(4)
#endif
#if TW_LANES >= 16
    TW_ROUND(8)
#endif
}

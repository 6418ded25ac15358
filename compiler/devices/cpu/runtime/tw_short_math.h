/* Functions for results that are rounded to bf16, which keep 8 bits: exact enough for these, and faster than those of tw_kernel.h. */
#pragma once

/* erf, off by 7e-5 at most: x (1/c + (x^2 - c^2) Q(x^2)), Q by least squares reweighted towards the largest error, for |x| < c; 1 from there. */
TW_INLINE vf tw_erf_bf16(vf x) {
    const float c = 2.8125f;
    vf t = tw_min_of(tw_splat(c), tw_max_of(tw_splat(-c), x));
    vf s = t * t;
    vf q = tw_splat(-4.36470032e-7f);
    q = q * s + 1.47027167e-5f;
    q = q * s + -2.10883474e-4f;
    q = q * s + 1.73027779e-3f;
    q = q * s + -9.26438160e-3f;
    q = q * s + 3.48798968e-2f;
    q = q * s + -9.76473168e-2f;
    return t * ((s - c * c) * q + 1.0f / c);
}
